//! How the segment files of a log are opened: with O_DIRECT and O_DSYNC where the options and the
//! file system allow it.
//!
//! A commit is then one system call, and its bandwidth does not depend on how warm the memory of a
//! virtual machine is. `OsBuffered` writes through the page cache.

use esker_disk::OpenMode;

/// The flags with which the files of a log are opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileMode {
    pub(crate) direct: bool,
    pub(crate) dsync: bool,
}

impl FileMode {
    pub(crate) fn writing(self) -> OpenMode {
        OpenMode::write().direct(self.direct).dsync(self.dsync)
    }

    /// For writes that a later sync makes durable.
    pub(crate) fn grouped_writing(self) -> OpenMode {
        Self { dsync: false, ..self }.writing()
    }

    pub(crate) fn reading(self) -> OpenMode {
        OpenMode::read().direct(self.direct)
    }
}
