//! A directory handle whose operations do not resolve the directory's path again.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Op, Refusal, Result};
use crate::file::{Facts, File, Lock, OpenMode};
use crate::io::Read;

/// An open directory.
///
/// Every operation is relative to the directory itself, not to the path it was opened by. When the
/// directory is renamed or moved, operations continue in it. They never reach another directory
/// that takes its path.
///
/// A name is one path component: not empty, not `.` or `..`, without `/` and without a zero byte.
/// Other names fail with [`Refusal::Name`]. All methods take `&self` and may be called from any
/// thread. Dropping the handle closes the directory without a sync.
pub trait Dir: Debug + Send + Sync {
    /// Returns the path the directory was opened by. For messages only: it may be out of date.
    fn path(&self) -> &Path;

    /// Returns the path of a name in the directory. For messages only, as [`Dir::path`].
    fn path_of(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Opens a regular file with the options `how`. Symbolic links are not followed. Opening any
    /// other kind of file fails without blocking.
    ///
    /// # Errors
    /// `NotFound` when the file is missing and `how` does not create it, `AlreadyExists` when
    /// `create_new` finds one, `InvalidInput` when the file system does not support direct I/O,
    /// `IsADirectory`, and [`Refusal::NotAFile`] for a symbolic link, a FIFO, a socket or a device.
    fn open(&self, name: &str, how: OpenMode) -> Result<Arc<dyn File>>;

    /// Renames `from` to `to`, replacing an existing `to`. Durable after [`Dir::sync`].
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Exchanges the names of two files in one atomic step. Durable after [`Dir::sync`].
    ///
    /// # Errors
    /// `NotFound` when one of them is missing, and [`Refusal::Exchange`] where the file system does
    /// not support it.
    fn exchange(&self, a: &str, b: &str) -> Result<()>;

    /// Removes a name. The bytes are freed when the last open handle on the file is dropped.
    fn unlink(&self, name: &str) -> Result<()>;

    /// Removes an empty subdirectory.
    ///
    /// # Errors
    /// `DirectoryNotEmpty`, `NotFound`, and `NotADirectory` for anything else of that name.
    fn remove_dir(&self, name: &str) -> Result<()>;

    /// Makes all names in the directory durable.
    fn sync(&self) -> Result<()>;

    /// Lists the names of files and directories in the directory, sorted.
    fn list(&self) -> Result<Vec<String>>;

    /// Opens a subdirectory. Symbolic links are not followed.
    ///
    /// # Errors
    /// `NotFound`, and `NotADirectory` for anything else of that name.
    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>>;

    /// Creates a subdirectory, makes its name durable and opens it. An existing one is opened.
    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>>;

    /// Returns the bytes that are free on the file system for this user, as far as they are known:
    /// other programs change them, and a quota is not in them.
    fn available(&self) -> Option<u64> {
        None
    }

    /// From now on, users that may read this file may also read what this handle creates, and not
    /// write it. A missing file changes nothing, nor does a disk without permissions.
    fn readable_as(&self, name: &str) -> Result<()> {
        let _ = name;
        Ok(())
    }

    /// Takes the exclusive lock on the directory itself. No file in the directory holds the lock:
    /// removing a file does not release it, and it stays with a renamed directory. It is held until
    /// the returned guard is dropped, or the process has ended and so has every child that `fork`
    /// made of it meanwhile, unless it called `exec`.
    ///
    /// # Errors
    /// `WouldBlock` when another handle holds it, in this process or another.
    fn lock(&self) -> Result<Box<dyn Lock>>;

    /// Reads from several files, each as [`read_full_at`](crate::read_full_at) does. A disk that
    /// can have several reads in flight does so; the order is then undefined. Returns the results
    /// in the order of the reads.
    fn read_each(&self, reads: &mut [Read<'_>]) -> Vec<Result<usize>> {
        reads.iter_mut().map(Read::run).collect()
    }

    /// Probes which open modes the disk supports for files in the directory.
    fn facts(&self) -> Result<Facts>;
}

/// Rejects a name that is not one path component.
pub(crate) fn check_name(op: Op, dir: &Path, name: &str) -> Result<()> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
        let source = io::Error::new(io::ErrorKind::InvalidInput, Refusal::Name);
        return Err(Error::new(op, &dir.join(name), None, source));
    }
    Ok(())
}
