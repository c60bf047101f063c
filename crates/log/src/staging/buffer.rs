//! A window: the image in memory of a piece of a segment.
//!
//! Payloads are copied once, to the place in the window that mirrors their place in the file. The
//! commit writes from there, and readers at the tip read from there.
//!
//! # Why this is sound
//!
//! The memory of a window is shared between appenders, the committer and readers, without a lock,
//! because they never touch the same bytes at the same time:
//!
//! * the core hands out each byte range once, under its lock, as a [`Reservation`]; a place is filled by
//!   the one appender that got it, and consumed by that;
//! * the committer takes a unit whose appenders have all finished (see `fill_tracker`), and writes the
//!   header and the zeros behind the last record, which are in no place;
//! * [`StagingBuffer::bytes`] is called only for bytes that nobody writes to again: units that were taken by
//!   the committer, of which readers learn through the durable mark, and records whose appenders
//!   have finished, without the header before them.
//!
//! A window is used again for another piece only when its `Arc` is unique.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_disk::AlignedBuf;

use crate::format::record::{RECORD_HEADER, RecordHeader, stored_size};
use crate::format::{BLOCK, Salt};

/// The piece of a segment that a window shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BufferSpan {
    pub(crate) segment: u64,
    pub(crate) base: u64,
    pub(crate) start: u32,
    pub(crate) limit: u32,
}

pub(crate) struct StagingBuffer {
    /// The bytes of all windows of the log, this one's among them.
    held: Arc<AtomicU64>,
    /// The segment and its incarnation.
    pub(crate) segment: u64,
    /// The position in the log of the segment's first byte.
    pub(crate) base: u64,
    /// The offset in the segment of the first byte of the window, a multiple of a block.
    pub(crate) start: u32,
    /// The offset behind the last byte that units may take here.
    pub(crate) limit: u32,
    capacity: u32,
    memory: AlignedBuf,
}

impl std::fmt::Debug for StagingBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Window({}, {}..{})", self.segment, self.start, self.limit)
    }
}

// SAFETY: see the module: all shared access is to disjoint or to finished ranges.
unsafe impl Sync for StagingBuffer {}

impl StagingBuffer {
    pub(crate) fn new(piece: BufferSpan, memory: AlignedBuf, held: Arc<AtomicU64>) -> Self {
        let BufferSpan { segment, base, start, limit } = piece;
        let capacity = memory.len() as u32;
        debug_assert!(start.is_multiple_of(BLOCK) && limit - start <= capacity);
        held.fetch_add(u64::from(capacity), Ordering::Relaxed);
        Self { held, segment, base, start, limit, capacity, memory }
    }

    /// Turns an unshared window to another piece.
    pub(crate) fn turn_to(&mut self, piece: BufferSpan) {
        debug_assert!(piece.limit - piece.start <= self.capacity());
        BufferSpan {
            segment: self.segment,
            base: self.base,
            start: self.start,
            limit: self.limit,
        } = piece;
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The bytes at these offsets of the segment, which are finished.
    pub(crate) fn bytes(&self, offsets: Range<u32>) -> &[u8] {
        let at = self.index(&offsets);
        // SAFETY: in bounds by `index`; the range is finished, so nobody writes to it.
        unsafe {
            std::slice::from_raw_parts(
                self.memory.as_ptr().add(at),
                (offsets.end - offsets.start) as usize,
            )
        }
    }

    /// Puts the committer's own bytes: a header, or the zeros behind the last record.
    ///
    /// # Safety
    /// The range is in a unit that the caller alone is committing, and in no [`Reservation`].
    unsafe fn put(&self, offset: u32, bytes: &[u8]) {
        let at = self.index(&(offset..offset + bytes.len() as u32));
        // SAFETY: in bounds by `index`; exclusive by the caller's word.
        unsafe {
            let to = self.memory.as_ptr().cast_mut().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    fn index(&self, offsets: &Range<u32>) -> usize {
        assert!(self.start <= offsets.start && offsets.start <= offsets.end);
        assert!(offsets.end <= self.start + self.capacity());
        (offsets.start - self.start) as usize
    }
}

impl Drop for StagingBuffer {
    fn drop(&mut self) {
        self.held.fetch_sub(u64::from(self.capacity), Ordering::Relaxed);
    }
}

/// Puts the header and the closing zeros of a unit that is complete.
///
/// The core gives a unit to one committer at a time, by value, which is what makes this exclusive.
pub(crate) fn close_unit(buffer: &StagingBuffer, unit: &Range<u32>, used: u32, header: &[u8]) {
    let zeros = [0; BLOCK as usize];
    let padding = (unit.end - unit.start - used) as usize;
    // SAFETY: places start behind the header and end at `used`.
    unsafe {
        buffer.put(unit.start, header);
        buffer.put(unit.start + used, &zeros[..padding]);
    }
}

/// A place for one record, handed out once by the core.
#[derive(Debug)]
#[must_use = "a place that is not filled holds up the commit"]
pub(crate) struct Reservation {
    pub(crate) offset: u32,
    /// The bytes that were given, header and zeros included.
    pub(crate) stored: u32,
    pub(crate) seq: u64,
    pub(crate) salt: Salt,
}

impl Reservation {
    /// Copies the record to its place; returns the bytes it takes and its checksum.
    pub(crate) fn fill(self, buffer: &StagingBuffer, payload: &[u8]) -> (u32, u32) {
        let stored = stored_size(payload.len());
        assert_eq!(stored, self.stored, "the payload is another than the one that was placed");
        let header = RecordHeader::new(self.salt, self.offset, self.seq, payload);
        let at = self.offset + RECORD_HEADER;
        let behind = at + payload.len() as u32;
        let zeros = [0; 8];
        // SAFETY: the core handed this range to this place alone, `self` is consumed, and the record
        // takes as many bytes as the range has.
        unsafe {
            buffer.put(self.offset, &header.to_bytes());
            buffer.put(at, payload);
            buffer.put(behind, &zeros[..(self.offset + stored - behind) as usize]);
        }
        (stored, header.crc)
    }
}
