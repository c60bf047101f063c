//! A file, and how it is opened.

use std::fmt::Debug;
use std::path::Path;

use crate::error::Result;

/// The alignment of direct I/O and the size of a block that is written whole: 4096 bytes.
///
/// For a file opened with [`OpenMode::direct`], the buffer's address, its length and the file
/// offset must be multiples of this. [`AlignedBuf`](crate::AlignedBuf) provides such buffers.
pub const BLOCK_BYTES: usize = 4096;

/// An open file. Dropping it closes it, without a sync.
pub trait File: Debug + Send + Sync {
    /// Reads at most `buf.len()` bytes from `offset`; `Ok(0)` at or past the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;

    /// Writes at most `buf.len()` bytes at `offset`, extending the file as needed. May be short.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize>;

    /// Makes every byte written before this call durable, and the file's size.
    fn sync_data(&self) -> Result<()>;

    /// Returns the size of the file in bytes.
    fn len(&self) -> Result<u64>;

    /// Returns whether the file is empty.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Truncates the file to `len` bytes or extends it with zeros. Durable after
    /// [`File::sync_data`].
    fn set_len(&self, len: u64) -> Result<()>;

    /// Reserves space for `offset..offset + len` and extends the file. Unwritten parts of the range
    /// read as zeros. Where the file system cannot reserve space, the file is only extended.
    ///
    /// # Errors
    /// When there is too little space ([`Error::is_no_space`](crate::Error::is_no_space)), a part
    /// may have been reserved and the file may be longer. [`File::set_len`] releases that part.
    fn preallocate(&self, offset: u64, len: u64) -> Result<()>;

    /// Returns the file's path when it was opened. For messages only: it may be out of date.
    fn path(&self) -> &Path;

    /// Returns whether the file was opened with [`OpenMode::direct`], so that transfers are in
    /// whole blocks. A wrapper must forward the answer of the file it wraps.
    fn is_direct(&self) -> bool {
        false
    }
}

/// A held lock; see [`Dir::lock`](crate::Dir::lock).
pub trait Lock: Debug + Send + Sync {}

/// The mode in which a file is opened. Start from [`OpenMode::read`], [`OpenMode::write`],
/// [`OpenMode::create`] or [`OpenMode::create_new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenMode {
    /// Allows writing.
    pub write: bool,
    /// Creates the file when missing, readable and writable by its owner only.
    pub create: bool,
    /// The file must not exist yet.
    pub create_new: bool,
    /// Reads and writes bypass the page cache (O_DIRECT). Addresses, lengths and offsets must be
    /// multiples of [`BLOCK_BYTES`].
    pub direct: bool,
    /// A write is durable when it returns (O_DSYNC).
    pub dsync: bool,
}

impl OpenMode {
    /// Opens an existing file for reading.
    pub const fn read() -> Self {
        Self { write: false, create: false, create_new: false, direct: false, dsync: false }
    }

    /// Opens an existing file for reading and writing.
    pub const fn write() -> Self {
        Self { write: true, ..Self::read() }
    }

    /// Opens for reading and writing; created when missing.
    pub const fn create() -> Self {
        Self { create: true, ..Self::write() }
    }

    /// Opens for reading and writing; an error when the file exists.
    pub const fn create_new() -> Self {
        Self { create_new: true, ..Self::create() }
    }

    /// Sets whether reads and writes bypass the page cache.
    #[must_use]
    pub const fn direct(mut self, on: bool) -> Self {
        self.direct = on;
        self
    }

    /// Sets whether every write is durable when it returns.
    #[must_use]
    pub const fn dsync(mut self, on: bool) -> Self {
        self.dsync = on;
        self
    }
}

/// The capabilities of a disk, as returned by [`Dir::facts`](crate::Dir::facts).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The implementation: `"std"`, `"uring"`, `"sim"`.
    pub name: &'static str,
    /// Files can be opened with [`OpenMode::direct`].
    pub direct: bool,
    /// Files can be opened with [`OpenMode::dsync`].
    pub dsync: bool,
}

impl Facts {
    /// Capabilities of the disk named `name`.
    pub const fn new(name: &'static str, direct: bool, dsync: bool) -> Self {
        Self { name, direct, dsync }
    }
}
