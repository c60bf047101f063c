//! A file and buffers that the kernel knows beforehand, so that it need not look them up and pin them
//! at each transfer.

use std::path::Path;

use super::locked;
use super::ring::Ring;
use crate::std_disk::StdFile;
use crate::{AlignedBuf, Error, File, Op, Open, Result, StdDisk};

/// An open file with registered buffers, on a ring of its own. Transfers are of whole buffers.
#[derive(Debug)]
pub struct Registered {
    // The ring goes first, and with it what the kernel knows of the file and the buffers.
    ring: Ring,
    file: StdFile,
}

impl Registered {
    /// Opens the file of this name in `dir` and registers it with these buffers.
    ///
    /// # Errors
    /// As [`Dir::open`](crate::Dir::open), [`Disk::open_dir`](crate::Disk::open_dir) and [`UringDisk::new`](super::UringDisk::new);
    /// `OutOfMemory` when the limit on locked memory is too low, with its name and value.
    pub fn open(dir: &Path, name: &str, how: Open, buffers: Vec<AlignedBuf>) -> Result<Self> {
        let file = StdDisk::new().open_std_dir(dir)?.open_file(name, how)?;
        let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
        let failed = |why| Error::new(Op::Open, file.path(), None, locked::named(why, bytes));
        let mut ring = Ring::new(Ring::MOST).map_err(failed)?;
        ring.register(file.fd(), buffers).map_err(failed)?;
        Ok(Self { ring, file })
    }

    /// A buffer.
    pub fn buffer(&mut self, index: usize) -> Option<&mut [u8]> {
        self.ring.buffer(index)
    }

    /// Fills a buffer from `offset`; fewer bytes where the file ends.
    ///
    /// # Errors
    /// As [`File::read_at`]; `NotFound` when there is no such buffer.
    pub fn read_at(&mut self, index: usize, offset: u64) -> Result<usize> {
        self.ring
            .read_registered(index, offset)
            .map_err(|why| Error::new(Op::Read, self.file.path(), Some(offset), why))
    }

    /// Writes a buffer at `offset`. May be short.
    ///
    /// # Errors
    /// As [`File::write_at`]; `NotFound` when there is no such buffer.
    pub fn write_at(&mut self, index: usize, offset: u64) -> Result<usize> {
        self.ring
            .write_registered(index, offset)
            .map_err(|why| Error::new(Op::Write, self.file.path(), Some(offset), why))
    }
}
