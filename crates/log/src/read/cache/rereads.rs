//! Whether it pays to keep chunks that a reader has passed.
//!
//! Readers that follow each other read the same chunks. A reader that is alone reads each chunk
//! once, and what it has passed only pushes the chunks that are loaded next out of the processor's
//! caches.

use std::collections::VecDeque;
use std::ops::Range;

use super::cached_chunk::CHUNK_BYTES;

/// After this many chunks in a row that were read once, the reader counts as alone.
const ALONE_AFTER_CHUNKS: u64 = 64;
/// A larger cache holds more: a reader behind may come for what it holds only this many times as
/// many chunks later.
const ALONE_AFTER_CACHES: u64 = 4;

/// The chunks that were read more than once lately.
#[derive(Debug, Default)]
pub(super) struct Rereads {
    /// The number of chunks read for the first time since one was read again.
    firsts: u64,
    /// The chunks evicted last, by segment and offsets: what a full cache would still have.
    evicted: VecDeque<(u64, Range<u32>)>,
    /// The bytes of these chunks.
    bytes: u64,
}

impl Rereads {
    /// A chunk was read for the first time since it was loaded.
    pub(super) fn first(&mut self) {
        self.firsts = self.firsts.saturating_add(1);
    }

    /// A chunk was read again.
    pub(super) fn again(&mut self) {
        self.firsts = 0;
    }

    /// A chunk is loaded. A part of it may have been in one that was kept for too short a time:
    /// another reader cuts the same units elsewhere.
    pub(super) fn loaded(&mut self, segment: u64, offsets: &Range<u32>) {
        let overlaps = |(number, evicted): &(u64, Range<u32>)| {
            *number == segment && evicted.start < offsets.end && offsets.start < evicted.end
        };
        if self.evicted.iter().any(overlaps) {
            self.again();
        }
    }

    /// A chunk that had been read was evicted. The last `most` bytes of them are remembered.
    pub(super) fn evicted(&mut self, segment: u64, offsets: Range<u32>, most: u64) {
        self.bytes += bytes(&offsets);
        self.evicted.push_back((segment, offsets));
        while self.bytes > most
            && let Some((_, oldest)) = self.evicted.pop_front()
        {
            self.bytes -= bytes(&oldest);
        }
    }

    /// Whether more readers are likely to come to the chunks that one has passed, with a cache of
    /// this many bytes.
    pub(super) fn are_likely(&self, budget: u64) -> bool {
        self.firsts < ALONE_AFTER_CHUNKS.max(budget / u64::from(CHUNK_BYTES) * ALONE_AFTER_CACHES)
    }
}

fn bytes(offsets: &Range<u32>) -> u64 {
    u64::from(offsets.end.saturating_sub(offsets.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 16 * CHUNK_BYTES as u64;

    fn alone() -> Rereads {
        let mut rereads = Rereads::default();
        for _ in 0..ALONE_AFTER_CHUNKS {
            assert!(rereads.are_likely(BUDGET));
            rereads.first();
        }
        assert!(!rereads.are_likely(BUDGET));
        rereads
    }

    #[test]
    fn a_reader_is_alone_until_a_chunk_is_read_again() {
        let mut rereads = alone();
        assert!(rereads.are_likely(2 * BUDGET), "a larger cache waits for longer");
        assert!(!rereads.are_likely(0));
        rereads.first();
        assert!(!rereads.are_likely(BUDGET));
        rereads.again();
        assert!(rereads.are_likely(BUDGET));
    }

    #[test]
    fn a_chunk_that_was_evicted_too_early_counts_and_an_older_one_does_not() {
        let loads = [
            (1, 0..100, false),
            (1, 100..150, true),
            (1, 50..101, true),
            (1, 299..400, true),
            (1, 300..400, false),
            (2, 100..200, false),
        ];
        for (segment, offsets, likely) in loads {
            let mut rereads = alone();
            for start in [0, 100, 200] {
                rereads.evicted(1, start..start + 100, 250);
            }
            rereads.loaded(segment, &offsets);
            assert_eq!(rereads.are_likely(BUDGET), likely, "{segment} {offsets:?}");
        }
        let mut rereads = alone();
        rereads.evicted(1, 0..100, 0);
        rereads.loaded(1, &(0..100));
        assert!(!rereads.are_likely(BUDGET), "a cache that keeps nothing");
    }
}
