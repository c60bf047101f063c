//! The disk under Esker.
//!
//! Everything that Esker makes durable goes through the two traits of this crate, [`Disk`] and
//! [`File`], and through nothing else. They promise little, so that they can be kept exactly:
//!
//! * A write is in the file when [`File::write_at`] returns, and durable only after a later
//!   [`File::sync_data`] on the same file returned `Ok`, or at once when the file was opened with
//!   [`Open::dsync`].
//! * A name (create, rename, unlink) is durable only after [`Disk::sync_dir`] on its directory.
//! * Reads and writes may be short. [`read_full_at`] and [`write_all_at`] finish them.
//! * After any failed write or sync nothing is known about the range, and trying again proves
//!   nothing: callers latch the failure.
//!
//! Implementations: [`StdDisk`] for a real machine, [`uring::UringDisk`] for one with Linux, and
//! `sim::SimDisk` (feature `sim`), a seeded disk in memory that keeps what is written apart from what
//! is durable.
//!
//! ```
//! use esker_disk::{Disk, Open, StdDisk, write_all_at};
//! # fn main() -> Result<(), esker_disk::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path();
//! let disk = StdDisk::new();
//! let file = disk.open(&dir.join("a"), Open::create())?;
//! write_all_at(&*file, b"settled", 0)?;
//! file.sync_data()?;
//! disk.sync_dir(dir)?; // now the name is durable, too
//! # Ok(())
//! # }
//! ```

mod aligned;
mod error;
mod huge_pages;
mod io;
mod std_disk;
#[cfg(target_os = "linux")]
pub mod uring;

#[cfg(feature = "sim")]
pub mod sim;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

pub use aligned::{AlignedBuf, HugePages};
pub use error::{Error, Op, Result};
pub use huge_pages::NoHugePages;
pub use io::{read_full_at, write_all_at};
pub use std_disk::StdDisk;

/// The unit of alignment for direct I/O and the size of a block that is written whole: 4096 bytes.
///
/// A buffer handed to a file opened with [`Open::direct`] starts at an address, has a length and
/// goes to an offset that are multiples of this. [`AlignedBuf`] gives such addresses.
pub const BLOCK: usize = 4096;

/// Where files live: a tree of directories with durable names.
///
/// All methods take `&self` and may be called from any thread. Paths are used as they are given.
pub trait Disk: Debug + Send + Sync {
    /// Opens a file as `how` says.
    ///
    /// # Errors
    /// `NotFound` when the file is missing and `how` does not create, `AlreadyExists` when
    /// `create_new` finds one, `InvalidInput` when direct I/O is refused by the file system.
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn File>>;

    /// Creates a directory and those above it that are missing, and makes their names durable.
    /// A directory that is already there is not an error.
    fn create_dir(&self, path: &Path) -> Result<()>;

    /// Gives `from` the name `to`, replacing what stood there. Durable after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a name. The bytes go when the last open file on it is dropped.
    fn unlink(&self, path: &Path) -> Result<()>;

    /// Makes all names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// The names in a directory, sorted, files and directories alike.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;

    /// Takes the exclusive lock on a file, which is created when missing. Held until the returned
    /// guard is dropped or the process ends.
    ///
    /// # Errors
    /// `WouldBlock` when anybody holds it, in this process or another.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;

    /// What this disk can do for files in `dir`, found out by trying.
    fn facts(&self, dir: &Path) -> Result<Facts>;
}

/// An open file. Dropping it closes it, without a sync.
pub trait File: Debug + Send + Sync {
    /// Reads at most `buf.len()` bytes from `offset`; `Ok(0)` at or behind the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;

    /// Writes at most `buf.len()` bytes at `offset`, growing the file where needed. May be short.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize>;

    /// Makes every byte written before this call durable, and the file's size with them.
    fn sync_data(&self) -> Result<()>;

    /// The size of the file in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file to `len` bytes or extends it with zeros. Durable after [`File::sync_data`].
    fn set_len(&self, len: u64) -> Result<()>;

    /// Reserves space for `offset..offset + len`, extending the file; the range reads as zeros where
    /// nothing was written. Where the file system cannot reserve, the file is only extended.
    fn preallocate(&self, offset: u64, len: u64) -> Result<()>;

    /// The path that the file was opened with.
    fn path(&self) -> &Path;

    /// Whether the file was opened with [`Open::direct`], so that reads and writes go in whole
    /// blocks. A file that wraps another hands on the answer.
    fn is_direct(&self) -> bool {
        false
    }
}

/// A held lock; see [`Disk::lock`].
pub trait Lock: Debug + Send + Sync {}

/// How to open a file. Start from [`Open::read`], [`Open::write`], [`Open::create`] or
/// [`Open::create_new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Open {
    /// Writing is allowed.
    pub write: bool,
    /// The file is created when missing, readable and writable by its owner only.
    pub create: bool,
    /// The file must not exist yet.
    pub create_new: bool,
    /// Reads and writes go past the page cache (O_DIRECT). Addresses, lengths and offsets are
    /// multiples of [`BLOCK`].
    pub direct: bool,
    /// A write is durable when it returns (O_DSYNC).
    pub dsync: bool,
}

impl Open {
    /// An existing file, for reading.
    pub const fn read() -> Self {
        Self { write: false, create: false, create_new: false, direct: false, dsync: false }
    }

    /// An existing file, for reading and writing.
    pub const fn write() -> Self {
        Self { write: true, ..Self::read() }
    }

    /// For reading and writing; created when missing.
    pub const fn create() -> Self {
        Self { create: true, ..Self::write() }
    }

    /// For reading and writing; an error when the file is there already.
    pub const fn create_new() -> Self {
        Self { create_new: true, ..Self::create() }
    }

    /// The same, with reads and writes past the page cache or not.
    #[must_use]
    pub const fn direct(mut self, on: bool) -> Self {
        self.direct = on;
        self
    }

    /// The same, with every write durable when it returns or not.
    #[must_use]
    pub const fn dsync(mut self, on: bool) -> Self {
        self.dsync = on;
        self
    }
}

/// What a disk can do, as found by [`Disk::facts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The implementation: `"std"`, `"uring"`, `"sim"`.
    pub name: &'static str,
    /// Files can be opened with [`Open::direct`].
    pub direct: bool,
    /// Files can be opened with [`Open::dsync`].
    pub dsync: bool,
}

impl Facts {
    /// Facts about a disk of the given name.
    pub const fn new(name: &'static str, direct: bool, dsync: bool) -> Self {
        Self { name, direct, dsync }
    }
}
