//! How the segment files of a log are opened.

use esker_disk::Open;

/// The flags with which the files of a log are opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileMode {
    pub(crate) direct: bool,
    pub(crate) dsync: bool,
}

impl FileMode {
    pub(crate) fn writing(self) -> Open {
        Open::write().direct(self.direct).dsync(self.dsync)
    }

    /// For writes that a later sync makes durable.
    pub(crate) fn grouped_writing(self) -> Open {
        Self { dsync: false, ..self }.writing()
    }

    pub(crate) fn reading(self) -> Open {
        Open::read().direct(self.direct)
    }
}
