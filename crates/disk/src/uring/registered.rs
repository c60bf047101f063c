//! A file and buffers registered with the kernel, which need not be looked up and pinned at each
//! transfer.

use std::path::Path;

use super::locked;
use super::ring::Ring;
use crate::aligned::AlignedBuf;
use crate::error::{Error, Op, Result};
use crate::file::{File, OpenMode};
use crate::process::refuse_if_forked;
use crate::std_disk::StdDisk;
use crate::std_disk::StdFile;

/// An open file with registered buffers, on its own ring. Transfers are whole buffers.
#[derive(Debug)]
pub struct Registered {
    // The ring is dropped first, and with it the kernel's references to the file and the buffers.
    ring: Ring,
    file: StdFile,
}

impl Registered {
    /// Opens the file `name` in `dir` and registers it with these buffers.
    ///
    /// # Errors
    /// As [`Dir::open`](crate::Dir::open), [`Disk::open_dir`](crate::Disk::open_dir) and
    /// [`UringDisk::new`](super::UringDisk::new); `OutOfMemory` when the limit on locked memory is
    /// too low, with its name and value.
    pub fn open(dir: &Path, name: &str, how: OpenMode, buffers: Vec<AlignedBuf>) -> Result<Self> {
        let file = StdDisk::new().open_std_dir(dir)?.open_file(name, how)?;
        let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
        let failed = |why| Error::new(Op::Open, file.path(), None, locked::named(why, bytes));
        let mut ring = Ring::new(Ring::PIECES_MAX).map_err(failed)?;
        ring.register(file.fd(), buffers).map_err(failed)?;
        Ok(Self { ring, file })
    }

    /// Returns a registered buffer.
    pub fn buffer(&mut self, index: usize) -> Option<&mut [u8]> {
        self.ring.buffer(index)
    }

    /// Fills a buffer from `offset`; short where the file ends.
    ///
    /// # Errors
    /// As [`File::read_at`]; `NotFound` when there is no such buffer.
    pub fn read_at(&mut self, index: usize, offset: u64) -> Result<usize> {
        refuse_if_forked(Op::Read, self.file.path())?;
        self.ring
            .read_registered(index, offset)
            .map_err(|why| Error::new(Op::Read, self.file.path(), Some(offset), why))
    }

    /// Writes a buffer at `offset`. May be short.
    ///
    /// # Errors
    /// As [`File::write_at`]; `NotFound` when there is no such buffer.
    pub fn write_at(&mut self, index: usize, offset: u64) -> Result<usize> {
        refuse_if_forked(Op::Write, self.file.path())?;
        self.ring
            .write_registered(index, offset)
            .map_err(|why| Error::new(Op::Write, self.file.path(), Some(offset), why))
    }
}
