//! Preallocated space for recovery and internal appends.
//!
//! The reserve is a file that is never written to. One rename turns the larger part of it into a
//! segment, so that a crash leaves this part whole under one of two names. Under neither name does
//! it count before it has a header.
//!
//! The other part, half of a small reserve, is kept for opening after a crash: it becomes the
//! reserve when the first becomes a segment. A crash in between leaves its space free. Recovery
//! copies what may be only in the page cache, which is little except under `OsBuffered`.
//!
//! The manifest keeps the largest size that the reserve had. Without that an opening would take
//! what is left of a reserve for all of it, and ordinary appends would use up the rest of the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use esker_disk::{Dir, File, OpenMode};

use crate::base::error::{Error, Result};
use crate::base::options::{Options, RESERVE_KEPT_MOST};
use crate::format::BLOCK_BYTES;
use crate::store::paths::{self, RESERVE};

/// The smallest reserve in bytes.
pub(crate) const RESERVE_LEAST: u64 = 64 << 10;

/// The least part in bytes that is never made a segment.
const KEPT_LEAST: u64 = 32 << 10;

/// The reserve of an open log.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    /// The size of the file, 0 when there is none.
    bytes: u64,
    /// The same, for threads that do not wait for the lock of the reserve.
    shared_bytes: Arc<AtomicU64>,
    /// The largest size that it had. It takes free space up to this size, and grows beyond it where
    /// as much is left.
    had: u64,
    /// The part of that which the manifest keeps, in blocks.
    pub(crate) recorded: u32,
}

impl Reserve {
    /// Opens the reserve in the directory, and creates or fills it as far as there is room. `had`
    /// is its size before recovery used it, and `recorded` the blocks in the manifest. `is_ring`:
    /// a log with a retention takes again what it frees, so its reserve does not grow by itself.
    pub(crate) fn open(
        dir: &dyn Dir,
        options: &Options,
        had: u64,
        recorded: u32,
        is_ring: bool,
    ) -> Result<Self> {
        let bytes = size(dir, RESERVE)?;
        let largest = (u64::from(recorded) * u64::from(BLOCK_BYTES)).min(options.reserve_bytes());
        let shared_bytes = Arc::new(AtomicU64::new(bytes));
        let mut reserve = Self { bytes, shared_bytes, had: had.max(bytes).max(largest), recorded };
        match options.reserve {
            Some(_) if reserve.had > options.reserve_bytes() => {
                reserve.lower(dir, options.reserve_bytes())?;
            }
            None if is_ring && reserve.had > 0 => reserve.restore(dir, options)?,
            _ => reserve.fill(dir, options)?,
        }
        Ok(reserve)
    }

    /// Makes the reserve smaller. The manifest keeps what it had, for openings that want it.
    fn lower(&mut self, dir: &dyn Dir, bytes: u64) -> Result<()> {
        self.had = bytes;
        match bytes {
            _ if self.bytes <= bytes => Ok(()),
            0 => {
                self.set_bytes(0);
                Ok(dir.unlink(RESERVE)?)
            }
            _ => self.shrink(dir, bytes),
        }
    }

    /// The size of the file, read without a lock.
    pub(crate) fn shared_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared_bytes)
    }

    fn set_bytes(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.shared_bytes.store(bytes, Relaxed);
    }

    /// The largest size that it had, in blocks.
    pub(crate) fn had_blocks(&self) -> u32 {
        u32::try_from(self.had / u64::from(BLOCK_BYTES)).unwrap_or(u32::MAX)
    }

    /// Whether it is so small that ordinary appends are refused until it is filled: a sixteenth
    /// below its former size. Cleaning needs the space that they would take: it copies a segment to
    /// free one.
    pub(crate) fn is_low(&self, options: &Options) -> bool {
        let least = (self.had - self.had / 16).max(RESERVE_LEAST).min(options.reserve_bytes());
        self.bytes < least
    }

    /// Fills the reserve up to its former size.
    pub(crate) fn restore(&mut self, dir: &dyn Dir, options: &Options) -> Result<()> {
        let wanted = options.reserve_bytes();
        let most = if self.bytes == 0 { wanted } else { self.had.min(wanted) };
        self.fill_to(most, dir)
    }

    /// Fills the reserve as far as there is room.
    pub(crate) fn fill(&mut self, dir: &dyn Dir, options: &Options) -> Result<()> {
        self.fill_to(options.reserve_bytes(), dir)
    }

    /// The bytes of the segment that [`Reserve::lend`] would make.
    pub(crate) fn lends(&self) -> u64 {
        // Two more blocks, for a directory entry and the file itself.
        self.bytes.saturating_sub(self.kept() + 2 * u64::from(BLOCK_BYTES))
    }

    /// The bytes that stay for opening after a crash.
    fn kept(&self) -> u64 {
        (self.had / 2).clamp(KEPT_LEAST, RESERVE_KEPT_MOST).next_multiple_of(u64::from(BLOCK_BYTES))
    }

    /// Gives the file all of the reserve but the part that is kept. If another program takes the
    /// space of that part meanwhile, the reserve stays, smaller.
    pub(crate) fn lend(&mut self, dir: &dyn Dir, name: &str) -> Result<()> {
        let (kept, lends) = (self.kept(), self.lends());
        let next = paths::temporary(RESERVE);
        let before = self.bytes;
        let file = dir.open(RESERVE, OpenMode::write())?;
        file.set_len(lends)?;
        file.sync_data()?;
        self.set_bytes(lends);
        match new_file(dir, &next, kept) {
            Err(error) if error.is_no_space() => {
                match file.preallocate(0, before) {
                    Ok(()) => self.set_bytes(before),
                    Err(_) => file.set_len(lends)?,
                }
                return Err(error);
            }
            rest => rest?.sync_data()?,
        }
        drop(file);
        dir.rename(RESERVE, name)?;
        self.set_bytes(0);
        dir.rename(&next, RESERVE)?;
        self.set_bytes(kept);
        Ok(())
    }

    /// Makes the file shorter by this many bytes and two blocks, for a directory entry and the file
    /// itself. Returns `false` if it lends less.
    pub(crate) fn release(&mut self, dir: &dyn Dir, bytes: u64) -> Result<bool> {
        if self.lends() < bytes {
            return Ok(false);
        }
        let bytes = bytes.next_multiple_of(u64::from(BLOCK_BYTES)) + 2 * u64::from(BLOCK_BYTES);
        self.shrink(dir, self.bytes.saturating_sub(bytes)).map(|()| true)
    }

    /// Makes the file empty. Returns `false` if there is none.
    pub(crate) fn release_all(&mut self, dir: &dyn Dir) -> Result<bool> {
        if self.bytes == 0 {
            return Ok(false);
        }
        self.shrink(dir, 0).map(|()| true)
    }

    fn shrink(&mut self, dir: &dyn Dir, bytes: u64) -> Result<()> {
        let file = dir.open(RESERVE, OpenMode::write())?;
        file.set_len(bytes)?;
        self.set_bytes(bytes);
        Ok(file.sync_data()?)
    }

    fn fill_to(&mut self, most: u64, dir: &dyn Dir) -> Result<()> {
        if self.bytes >= most {
            return Ok(());
        }
        let file = match dir.open(RESERVE, OpenMode::create()) {
            Err(cause) if cause.is_no_space() => return Ok(()),
            file => file?,
        };
        let block = u64::from(BLOCK_BYTES);
        let mut size = most;
        // Each attempt adds half as much as the one before.
        while size > self.bytes && size >= RESERVE_LEAST.min(most) {
            let own = self.had.max(self.bytes);
            // Beyond its former size it leaves as much free space to others as it has. If it left
            // what it takes now, it would halve the rest each time that space is freed.
            if size <= own || has_room(dir, own, size - self.bytes + size)? {
                match file.preallocate(0, size) {
                    Ok(()) => {
                        file.set_len(size)?;
                        file.sync_data()?;
                        dir.sync()?;
                        self.set_bytes(size);
                        self.had = self.had.max(size);
                        return Ok(());
                    }
                    Err(cause) if cause.is_no_space() => file.set_len(self.bytes)?,
                    Err(cause) => return Err(cause.into()),
                }
            }
            let half = self.bytes + (size - self.bytes) / 2 / block * block;
            size = if size > own && half < own { own } else { half };
        }
        if self.bytes == 0 {
            drop(file);
            dir.unlink(RESERVE)?;
        }
        Ok(())
    }
}

/// The size of a file, 0 when there is none.
pub(crate) fn size(dir: &dyn Dir, name: &str) -> Result<u64> {
    match dir.open(name, OpenMode::read()) {
        Ok(file) => Ok(file.len()?),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(cause) => Err(cause.into()),
    }
}

/// Whether that much is free, for a reserve that had `own` bytes. Asks with a temporary file: where
/// there is less, the file has all of it for a moment, and a crash leaves it so. An opening removes
/// this file, and would take that for the reserve.
///
/// A reserve that is there need not grow, so it does not ask where the file system says no.
fn has_room(dir: &dyn Dir, own: u64, bytes: u64) -> Result<bool> {
    if own > 0 && dir.available().is_some_and(|available| available < bytes) {
        return Ok(false);
    }
    let name = paths::temporary(RESERVE);
    match new_file(dir, &name, bytes) {
        Err(error) if error.is_no_space() => Ok(false),
        file => {
            drop(file?);
            dir.unlink(&name)?;
            Ok(true)
        }
    }
}

/// Creates a file with this much room, from free space, or else also from the reserve. In the
/// second case it first releases part of the reserve, or all where it has less. If another program
/// takes that space, the rest of the reserve becomes the file, or the reserve is filled again.
pub(crate) fn file_with_room(dir: &dyn Dir, name: &str, room: u64) -> Result<Arc<dyn File>> {
    let full = match new_file(dir, name, room) {
        Err(Error::Io(cause)) if cause.is_no_space() => cause,
        made => return made,
    };
    let have = size(dir, RESERVE)?;
    if have == 0 {
        return Err(Error::Io(full));
    }
    // Two more blocks, for a directory entry and the file itself.
    let rest = have.saturating_sub(room + 2 * u64::from(BLOCK_BYTES)) / u64::from(BLOCK_BYTES);
    let file = dir.open(RESERVE, OpenMode::write())?;
    file.set_len(rest * u64::from(BLOCK_BYTES))?;
    file.sync_data()?;
    match new_file(dir, name, room) {
        Err(Error::Io(cause)) if cause.is_no_space() && rest * u64::from(BLOCK_BYTES) >= room => {
            dir.rename(RESERVE, name)?;
            Ok(file)
        }
        Err(Error::Io(cause)) if cause.is_no_space() => {
            // Space that cannot be allocated again is missing until there is room.
            if file.preallocate(0, have).is_err() {
                file.set_len(rest * u64::from(BLOCK_BYTES))?;
            }
            Err(Error::Io(cause))
        }
        made => made,
    }
}

fn new_file(dir: &dyn Dir, name: &str, room: u64) -> Result<Arc<dyn File>> {
    let file = dir.open(name, OpenMode::create())?;
    file.set_len(0)?;
    if let Err(cause) = file.preallocate(0, room) {
        drop(file);
        dir.unlink(name)?;
        return Err(cause.into());
    }
    Ok(file)
}
