//! Whether it pays to keep chunks that a reader has passed.
//!
//! Readers that follow each other read the same chunks. A reader that is alone reads each chunk
//! once, and what it has passed only pushes the chunks that are loaded next out of the processor's
//! caches.

use std::collections::VecDeque;

use super::chunk::ChunkId;

/// After this many chunks in a row that were read once, the reader counts as alone.
const ALONE: u32 = 64;

/// What was read more than once lately.
#[derive(Debug, Default)]
pub(super) struct Rereads {
    /// The number of chunks read for the first time since one was read again.
    firsts: u32,
    /// The chunks evicted last: as many as a larger cache would still have.
    evicted: VecDeque<ChunkId>,
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

    /// A chunk is loaded. It may be one that was kept for too short a time.
    pub(super) fn loaded(&mut self, id: ChunkId) {
        if self.evicted.contains(&id) {
            self.again();
        }
    }

    /// A chunk that had been read was evicted. The last `most` are remembered.
    pub(super) fn evicted(&mut self, id: ChunkId, most: usize) {
        self.evicted.push_back(id);
        while self.evicted.len() > most {
            self.evicted.pop_front();
        }
    }

    /// Whether more readers are likely to come to the chunks that one has passed.
    pub(super) fn are_likely(&self) -> bool {
        self.firsts < ALONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone() -> Rereads {
        let mut rereads = Rereads::default();
        for _ in 0..ALONE {
            assert!(rereads.are_likely());
            rereads.first();
        }
        assert!(!rereads.are_likely());
        rereads
    }

    #[test]
    fn a_reader_is_alone_until_a_chunk_is_read_again() {
        let mut rereads = alone();
        rereads.first();
        assert!(!rereads.are_likely());
        rereads.again();
        assert!(rereads.are_likely());
    }

    #[test]
    fn a_chunk_that_was_evicted_too_early_counts_and_an_older_one_does_not() {
        for (id, likely) in [((1, 0), false), ((1, 1), true), ((1, 2), true), ((2, 1), false)] {
            let mut rereads = alone();
            for offset in 0..3 {
                rereads.evicted((1, offset), 2);
            }
            rereads.loaded(id);
            assert_eq!(rereads.are_likely(), likely, "{id:?}");
        }
        let mut rereads = alone();
        rereads.evicted((1, 0), 0);
        rereads.loaded((1, 0));
        assert!(!rereads.are_likely(), "a cache that keeps nothing");
    }
}
