//! A directory that is opened once, so that nothing done in it resolves its path again.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Error, Facts, File, Lock, Op, Open, Refusal, Result};

/// An open directory. Every operation is relative to the directory itself, not to the path that it
/// was opened by: it goes on in the same directory when somebody renames or moves that, and never
/// reaches another one that takes its place.
///
/// A name is one component: not empty, not `.` or `..`, without `/` and without a zero byte. Any
/// other is refused with [`Refusal::Name`]. All methods take `&self` and may be called from any
/// thread. Dropping it closes it, without a sync.
pub trait Dir: Debug + Send + Sync {
    /// The path that the directory was opened by. For messages: it may lead elsewhere by now.
    fn path(&self) -> &Path;

    /// The path of a name in the directory. For messages, as [`Dir::path`].
    fn path_of(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Opens a regular file as `how` says. A symbolic link is not followed, and nothing else that
    /// has the name is waited for.
    ///
    /// # Errors
    /// `NotFound` when the file is missing and `how` does not create, `AlreadyExists` when
    /// `create_new` finds one, `InvalidInput` when direct I/O is refused by the file system,
    /// `IsADirectory`, and [`Refusal::NotAFile`] for a symbolic link, a FIFO, a socket or a device.
    fn open(&self, name: &str, how: Open) -> Result<Arc<dyn File>>;

    /// Gives `from` the name `to`, replacing what had it. Durable after [`Dir::sync`].
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Gives each of two files the other's name, in one step. Durable after [`Dir::sync`].
    ///
    /// # Errors
    /// `NotFound` when one of them is missing, and [`Refusal::Exchange`] where the file system
    /// cannot do it.
    fn exchange(&self, a: &str, b: &str) -> Result<()>;

    /// Removes a name. The bytes go when the last open file on it is dropped.
    fn unlink(&self, name: &str) -> Result<()>;

    /// Makes all names in the directory durable.
    fn sync(&self) -> Result<()>;

    /// The names in the directory, sorted, files and directories alike.
    fn list(&self) -> Result<Vec<String>>;

    /// Opens a directory in this one. A symbolic link is not followed.
    ///
    /// # Errors
    /// `NotFound`, and `NotADirectory` for anything that is none.
    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>>;

    /// Creates a directory in this one, makes its name durable and opens it. One that is already
    /// there is opened.
    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>>;

    /// Takes the exclusive lock on the directory itself. Nothing in the directory holds it, so that
    /// removing a file does not end it, and renaming the directory takes it along. Held until the
    /// returned guard is dropped or the process ends.
    ///
    /// # Errors
    /// `WouldBlock` when another handle holds it, in this process or another.
    fn lock(&self) -> Result<Box<dyn Lock>>;

    /// What this disk can do for files in the directory, found out by trying.
    fn facts(&self) -> Result<Facts>;
}

/// Refuses a name that is not one component of a path.
pub(crate) fn check_name(op: Op, dir: &Path, name: &str) -> Result<()> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
        let source = io::Error::new(io::ErrorKind::InvalidInput, Refusal::Name);
        return Err(Error::new(op, &dir.join(name), None, source));
    }
    Ok(())
}
