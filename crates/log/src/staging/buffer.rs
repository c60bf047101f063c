//! A staging buffer: the bytes of a part of a segment, in memory.
//!
//! Payloads are copied once, to the offset in the buffer that mirrors their offset in the file. The
//! commit writes from there, and readers at the tip read from there.
//!
//! # Soundness
//!
//! Appenders, the committer and readers share the memory of a buffer without a lock, because they
//! never touch the same bytes at the same time:
//!
//! * The commit core hands out each byte range once, under its lock, as a [`Reservation`]. Only the
//!   appender that got a reservation fills it, and filling consumes it.
//! * The committer takes a unit whose appenders have all finished (see `fill_tracker`). It writes
//!   the header and the zeros after the last record, which are in no reservation.
//! * [`StagingBuffer::bytes`] is called only for bytes that are never written again. These are
//!   units that the committer has taken, which readers learn of through the durable watermark, and
//!   records whose appenders have finished, without the header before them.
//!
//! A buffer is reused for another part only when its `Arc` is unique.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_disk::AlignedBuf;

use crate::format::record::{RECORD_HEADER, RecordHeader, stored_size};
use crate::format::{BLOCK_BYTES, Salt};
use crate::runtime::prefetch::prefetch;

/// Bytes of memory that are requested ahead of the appends.
const PREFETCH_BYTES: usize = 256;
const CACHE_LINE_BYTES: usize = 64;

/// The part of a segment that a buffer holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BufferSpan {
    pub(crate) segment: u64,
    pub(crate) base: u64,
    pub(crate) start: u32,
    pub(crate) limit: u32,
}

pub(crate) struct StagingBuffer {
    /// The total bytes of all staging buffers of the log, this one included.
    held: Arc<AtomicU64>,
    /// The segment and its incarnation.
    pub(crate) segment: u64,
    /// The position in the log of the segment's first byte.
    pub(crate) base: u64,
    /// The offset in the segment of the first byte of the buffer, a multiple of a block.
    pub(crate) start: u32,
    /// The offset after the last byte that units may take here.
    pub(crate) limit: u32,
    capacity: u32,
    memory: AlignedBuf,
}

impl std::fmt::Debug for StagingBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StagingBuffer({}, {}..{})", self.segment, self.start, self.limit)
    }
}

// SAFETY: see the module docs: all shared access is to disjoint or to finished ranges.
unsafe impl Sync for StagingBuffer {}

impl StagingBuffer {
    pub(crate) fn new(span: BufferSpan, memory: AlignedBuf, held: Arc<AtomicU64>) -> Self {
        let BufferSpan { segment, base, start, limit } = span;
        let capacity = memory.len() as u32;
        debug_assert!(start.is_multiple_of(BLOCK_BYTES) && limit - start <= capacity);
        held.fetch_add(u64::from(capacity), Ordering::Relaxed);
        Self { held, segment, base, start, limit, capacity, memory }
    }

    /// Reassigns an unshared buffer to another part.
    pub(crate) fn turn_to(&mut self, span: BufferSpan) {
        debug_assert!(span.limit - span.start <= self.capacity());
        BufferSpan {
            segment: self.segment,
            base: self.base,
            start: self.start,
            limit: self.limit,
        } = span;
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The bytes at these offsets of the segment, which must be finished.
    pub(crate) fn bytes(&self, offsets: Range<u32>) -> &[u8] {
        let at = self.index(&offsets);
        // SAFETY: in bounds by `index`; the range is finished, so no thread writes to it.
        unsafe {
            std::slice::from_raw_parts(
                self.memory.as_ptr().add(at),
                (offsets.end - offsets.start) as usize,
            )
        }
    }

    /// Writes the committer's own bytes, a header or the zeros after the last record, or the bytes
    /// of a reservation.
    ///
    /// # Safety
    /// The caller has exclusive access to the range. It is in the [`Reservation`] that the caller
    /// consumes, or in no reservation and in a unit that the caller alone is committing.
    unsafe fn put(&self, offset: u32, bytes: &[u8]) {
        let at = self.index(&(offset..offset + bytes.len() as u32));
        // SAFETY: in bounds by `index`; exclusive by the caller's contract.
        unsafe {
            let to = self.memory.as_ptr().cast_mut().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Requests the memory of the record that begins at `offset`.
    fn prefetch(&self, offset: u32) {
        let at = self.memory.as_ptr().wrapping_add((offset - self.start) as usize);
        for ahead in (0..PREFETCH_BYTES).step_by(CACHE_LINE_BYTES) {
            prefetch(at.wrapping_add(ahead));
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

/// Writes the header and the closing zeros of a complete unit.
///
/// The commit core gives a unit to one committer at a time, by value, so this access is exclusive.
pub(crate) fn close_unit(buffer: &StagingBuffer, unit: &Range<u32>, used: u32, header: &[u8]) {
    let zeros = [0; BLOCK_BYTES as usize];
    let padding = (unit.end - unit.start - used) as usize;
    // SAFETY: reservations start after the header and end at `used`.
    unsafe {
        buffer.put(unit.start, header);
        buffer.put(unit.start + used, &zeros[..padding]);
    }
}

/// The bytes of one record in a buffer, handed out once by the commit core.
#[derive(Debug)]
#[must_use = "a place that is not filled holds up the commit"]
pub(crate) struct Reservation {
    pub(crate) offset: u32,
    /// The length of the range, header and zeros included.
    pub(crate) stored: u32,
    pub(crate) seq: u64,
    pub(crate) salt: Salt,
}

impl Reservation {
    /// Copies the record to the range. Returns the bytes that it takes and its checksum.
    pub(crate) fn fill(self, buffer: &StagingBuffer, payload: &[u8]) -> (u32, u32) {
        let stored = stored_size(payload.len());
        assert_eq!(stored, self.stored, "the payload is another than the one that was placed");
        let header = RecordHeader::new(self.salt, self.offset, self.seq, payload);
        let at = self.offset + RECORD_HEADER;
        let end = at + payload.len() as u32;
        let zeros = [0; 8];
        // SAFETY: the commit core handed this range to this reservation alone, `self` is consumed,
        // and the record takes as many bytes as the range has.
        unsafe {
            buffer.put(self.offset, &header.to_bytes());
            buffer.put(at, payload);
            buffer.put(end, &zeros[..(self.offset + stored - end) as usize]);
        }
        // The disk read the buffer from memory, so it is in no cache of this processor any more. An
        // append that waits for it takes a third longer.
        buffer.prefetch(self.offset + stored);
        (stored, header.crc)
    }
}
