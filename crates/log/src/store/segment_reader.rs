//! Reading a segment file from front to back with bounded memory.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use esker_disk::{AlignedBuf, BLOCK_BYTES, File, read_full_at};

use crate::base::error::{Result, with_causes};
use crate::format::SEGMENT_MAX;

/// The blocks that a device failed to read, over several readers of one directory.
#[derive(Debug, Default)]
pub(crate) struct ReadErrors(RefCell<UnreadableBlocks>);

#[derive(Debug, Default)]
struct UnreadableBlocks {
    blocks: BTreeSet<(PathBuf, u64)>,
    cause: Option<esker_disk::Error>,
}

impl ReadErrors {
    /// Records a block that could not be read in two attempts.
    pub(crate) fn note(&self, offset: u64, cause: &esker_disk::Error) {
        let mut seen = self.0.borrow_mut();
        // The count stops at 64 blocks: that is too many already.
        if seen.blocks.len() < 64 {
            seen.blocks.insert((cause.path(), offset));
        }
        seen.cause.get_or_insert_with(|| cause.clone());
    }

    /// How many blocks could not be read, and the cause of the first failure.
    pub(crate) fn seen(&self) -> (usize, Option<esker_disk::Error>) {
        let seen = self.0.borrow();
        (seen.blocks.len(), seen.cause.clone())
    }
}

const READ_BYTES: usize = 2 << 20;
/// Shorter buffers come from the allocator: a mapping costs a page fault for each page.
const MAPPED_BYTES_MIN: usize = 128 << 10;

/// A sliding view of a file. Callers ask for offsets that are multiples of a block.
#[derive(Debug)]
pub(crate) struct SegmentReader<'a> {
    read_errors: Option<&'a ReadErrors>,
    file: Arc<dyn File>,
    len: u64,
    buffer: AlignedBuf,
    loaded: Range<u64>,
    /// Blocks that the device fails to read. They read as zeros.
    unreadable: Vec<u64>,
}

impl<'a> SegmentReader<'a> {
    pub(crate) fn new(file: Arc<dyn File>) -> Result<Self> {
        Self::watched(file, None)
    }

    /// A reader that records what could not be read.
    pub(crate) fn watched(
        file: Arc<dyn File>,
        read_errors: Option<&'a ReadErrors>,
    ) -> Result<Self> {
        // No segment is longer; what follows is not part of the log.
        let len = file.len()?.min(u64::from(SEGMENT_MAX));
        // The first read makes a larger one.
        let buffer = AlignedBuf::new(BLOCK_BYTES);
        Ok(Self { read_errors, file, len, buffer, loaded: 0..0, unreadable: Vec::new() })
    }

    /// Ends the view at this offset. What follows is not even read.
    pub(crate) fn end_at(&mut self, end: u64) {
        self.len = self.len.min(end);
    }

    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// At most `len` bytes from `offset`; fewer where the file ends.
    pub(crate) fn at(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let end = (offset + len as u64).min(self.len).max(offset);
        if offset < self.loaded.start || end > self.loaded.end {
            self.load(offset, (end - offset) as usize)?;
        }
        let from = (offset - self.loaded.start) as usize;
        let to = (end.min(self.loaded.end).max(offset) - self.loaded.start) as usize;
        Ok(&self.buffer[from..to])
    }

    /// The block at `offset`, or what the file has of it. Reads nothing else.
    pub(crate) fn block(&mut self, offset: u64) -> Result<&[u8]> {
        let held = self.loaded.start <= offset && offset + BLOCK_BYTES as u64 <= self.loaded.end;
        if !held {
            let got = read_full_at(&*self.file, &mut self.buffer[..BLOCK_BYTES], offset)?;
            self.loaded = offset..offset + got as u64;
        }
        self.at(offset, BLOCK_BYTES.min((self.loaded.end - offset) as usize))
    }

    /// Whether a block in this range could not be read.
    pub(crate) fn is_unreadable(&self, offset: u64, len: usize) -> bool {
        let range = offset..offset + len as u64;
        self.unreadable.iter().any(|block| range.contains(block))
    }

    fn load(&mut self, offset: u64, len: usize) -> Result<()> {
        let want = len.max(READ_BYTES.min((self.len - offset.min(self.len)) as usize));
        let want = want.next_multiple_of(BLOCK_BYTES);
        if want > self.buffer.len() {
            self.buffer = if want < MAPPED_BYTES_MIN {
                AlignedBuf::new(want)
            } else {
                AlignedBuf::lazy_huge(want)
            };
        }
        self.loaded = offset..offset;
        let buffer = &mut self.buffer[..want];
        let got = match read_full_at(&*self.file, buffer, offset) {
            Ok(got) => got,
            Err(cause) => {
                tracing::warn!(error = with_causes(&cause), "read failed; retrying block by block");
                let left = self.len.saturating_sub(offset).min(want as u64);
                let unreadable = block_by_block(&*self.file, buffer, offset, self.read_errors);
                self.unreadable.extend(unreadable);
                left as usize
            }
        };
        self.loaded = offset..offset + got as u64;
        Ok(())
    }
}

/// Reads each block separately. Returns the offsets of those that fail; they read as zeros.
fn block_by_block(
    file: &dyn File,
    buffer: &mut [u8],
    offset: u64,
    read_errors: Option<&ReadErrors>,
) -> Vec<u64> {
    let mut unreadable = Vec::new();
    for (n, block) in buffer.chunks_mut(BLOCK_BYTES).enumerate() {
        let at = offset + (n * BLOCK_BYTES) as u64;
        block.fill(0);
        if let Err(cause) = read_full_at(file, block, at) {
            block.fill(0);
            unreadable.push(at);
            if let Some(read_errors) = read_errors {
                read_errors.note(at, &cause);
            }
        }
    }
    unreadable
}
