//! The disk under Esker.
//!
//! Everything that Esker makes durable goes through the three traits of this crate, [`Disk`], [`Dir`]
//! and [`File`], and through nothing else. They promise little, so that they can be kept exactly:
//!
//! * A write is in the file when [`File::write_at`] returns, and durable only after a later
//!   [`File::sync_data`] on the same file returned `Ok`, or at once when the file was opened with
//!   [`Open::dsync`].
//! * A name (create, rename, unlink) is durable only after [`Dir::sync`] on its directory.
//! * A path is resolved once, by [`Disk::open_dir`]. A [`Dir`] stays with its directory when that is
//!   moved, and its lock with it.
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
//! # let place = tempfile::tempdir().unwrap();
//! # let path = place.path();
//! let dir = StdDisk::new().open_dir(path)?;
//! let file = dir.open("a", Open::create())?;
//! write_all_at(&*file, b"settled", 0)?;
//! file.sync_data()?;
//! dir.sync()?; // now the name is durable, too
//! # Ok(())
//! # }
//! ```

mod aligned;
mod dir;
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
pub use dir::Dir;
pub use error::{Error, Op, Refusal, Result};
pub use huge_pages::NoHugePages;
pub use io::{read_full_at, write_all_at};
pub use std_disk::StdDisk;

/// The unit of alignment for direct I/O and the size of a block that is written whole: 4096 bytes.
///
/// A buffer handed to a file opened with [`Open::direct`] starts at an address, has a length and
/// goes to an offset that are multiples of this. [`AlignedBuf`] gives such addresses.
pub const BLOCK: usize = 4096;

/// Where directories live: a tree with durable names.
///
/// A path is resolved once, when a directory is opened. Everything else is done through the [`Dir`].
/// All methods take `&self` and may be called from any thread. Paths are used as they are given, and
/// symbolic links in them are followed.
pub trait Disk: Debug + Send + Sync {
    /// Opens a directory.
    ///
    /// # Errors
    /// `NotFound`, and `NotADirectory` for anything that is none.
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>>;

    /// Creates a directory and those above it that are missing, makes their names durable, and opens
    /// it. A directory that is already there is opened.
    ///
    /// # Errors
    /// `NotADirectory` when something else has its name, or one above it.
    fn create_dir(&self, path: &Path) -> Result<Arc<dyn Dir>>;
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
    ///
    /// # Errors
    /// Where there is too little space ([`Error::is_no_space`]) a part may have been reserved, and
    /// the file may be longer: [`File::set_len`] gives that back.
    fn preallocate(&self, offset: u64, len: u64) -> Result<()>;

    /// The path of the file when it was opened. For messages: it may lead elsewhere by now.
    fn path(&self) -> &Path;

    /// Whether the file was opened with [`Open::direct`], so that reads and writes go in whole
    /// blocks. A file that wraps another hands on the answer.
    fn is_direct(&self) -> bool {
        false
    }
}

/// A held lock; see [`Dir::lock`].
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

/// What a disk can do, as found by [`Dir::facts`].
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
