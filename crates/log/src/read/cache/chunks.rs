//! The chunks of the read cache: loaded, loading or queued. Decides which are evicted first.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::cached_chunk::{CHUNK_BYTES, Chunk, ChunkId, Content};
use super::rereads::Rereads;
use super::throttle::Throttle;
use crate::format::BLOCK_BYTES;
use crate::read::batch::Memory;
use crate::read::source::{ReadSource, Want};
use crate::store::segment_table::Segment;

/// The number of chunks loaded ahead of a reader.
const CHUNKS_AHEAD: usize = 6;
/// Bytes of chunks that are kept behind a reader that is alone.
const KEPT_ALONE: u64 = 2 << 20;
/// The most chunks that one load evicts because a reader is alone. A large cache shrinks in steps,
/// as readers wait for the lock.
const AT_ONCE: usize = 4;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) chunks: BTreeMap<ChunkId, Chunk>,
    /// Chunks that an engine thread is to load, in order.
    pub(super) queue: VecDeque<ChunkId>,
    pub(super) loading: usize,
    pub(super) bytes: u64,
    pub(super) clock: u64,
    rereads: Rereads,
    pub(super) throttle: Throttle,
}

/// The result of looking up a chunk.
pub(super) enum Lookup {
    Queued,
    Loading,
    /// `None` if there is no valid unit at the offset.
    Loaded(Option<(Memory, Range<u32>)>),
}

impl State {
    /// Looks up the chunk that covers an offset. Inserts a queued one if there is none.
    pub(super) fn lookup(&mut self, want: &Want<'_>) -> (ChunkId, Lookup) {
        self.clock += 1;
        let id = self.over(want.segment.number(), want.offset).unwrap_or_else(|| {
            self.insert(want.segment, want.offset, want.end);
            (want.segment.number(), want.offset)
        });
        let Some(chunk) = self.chunks.get_mut(&id) else { return (id, Lookup::Loaded(None)) };
        chunk.used = self.clock;
        if let Content::Loaded(..) = chunk.content {
            match chunk.awaited.take() {
                Some(_) => self.rereads.first(),
                None => self.rereads.again(),
            }
        }
        let lookup = match &chunk.content {
            Content::Queued(_) => Lookup::Queued,
            Content::Loading => Lookup::Loading,
            Content::Loaded(buffer, valid) => Lookup::Loaded(
                (want.offset < *valid)
                    .then(|| (Memory::Read(Arc::clone(buffer), id.1), want.offset..*valid)),
            ),
            Content::Invalid => {
                self.chunks.remove(&id);
                Lookup::Loaded(None)
            }
        };
        (id, lookup)
    }

    /// The start of the chunk that covers this offset.
    fn over(&self, segment: u64, offset: u32) -> Option<ChunkId> {
        let (id, chunk) = self.chunks.range(..=(segment, offset)).next_back()?;
        (id.0 == segment && offset < chunk.end).then_some(*id)
    }

    /// Inserts a queued chunk at an offset that no chunk covers.
    fn insert(&mut self, segment: &Arc<Segment>, offset: u32, end: u32) {
        let content = Content::Queued(Arc::clone(segment));
        let (end, most) = match segment.units_until(offset, CHUNK_BYTES, end) {
            Some(end) => (end, end),
            None => (end.min(offset.saturating_add(CHUNK_BYTES)), end),
        };
        let (used, wakers) = (self.clock, Vec::new());
        let chunk = Chunk {
            end,
            most,
            content,
            used,
            awaited: Some(Instant::now()),
            listed: false,
            wakers,
        };
        let id = (segment.number(), offset);
        self.rereads.loaded(id.0, &(offset..chunk.end));
        self.chunks.insert(id, chunk);
    }

    /// Registers a waker for the end of the load. Takes it only if no equivalent waker is
    /// registered.
    pub(super) fn wake(&mut self, id: ChunkId, waker: &mut Option<Waker>) {
        if let Some(Chunk { wakers, .. }) = self.chunks.get_mut(&id)
            && !waker.as_ref().is_some_and(|new| wakers.iter().any(|old| old.will_wake(new)))
        {
            wakers.extend(waker.take());
        }
    }

    pub(super) fn queue(&mut self, id: ChunkId) {
        let chunk = self.chunks.get_mut(&id);
        if chunk.is_some_and(|chunk| !std::mem::replace(&mut chunk.listed, true)) {
            self.queue.push_back(id);
        }
    }

    /// Queues chunks from this offset on, as long as at most `most` bytes await a reader. Returns
    /// whether it queued any.
    pub(super) fn ahead(
        &mut self,
        log: &dyn ReadSource,
        want: &Want<'_>,
        offset: u32,
        most: u64,
    ) -> bool {
        let (mut segment, mut offset, mut end) = (Arc::clone(want.segment), offset, want.end);
        let mut queued = false;
        for _ in 0..CHUNKS_AHEAD {
            if offset >= end {
                let Some(next) = log.segments().after(segment.number()) else { break };
                (segment, offset) = (next, BLOCK_BYTES);
                end = log.segments().readable(&segment, log.limit().0);
            }
            // Bytes that the tail cache holds need not be read.
            if offset >= end || log.buffer(segment.number(), offset).is_some() {
                break;
            }
            let covering = match self.over(segment.number(), offset) {
                Some(covering) => covering,
                None if self.awaited() >= most => break,
                None => {
                    self.insert(&segment, offset, end);
                    self.queue((segment.number(), offset));
                    queued = true;
                    (segment.number(), offset)
                }
            };
            match self.chunks.get(&covering) {
                Some(chunk) if !chunk.is_open() => offset = chunk.end,
                _ => break,
            }
        }
        queued
    }

    /// Bytes of chunks that await a reader.
    fn awaited(&self) -> u64 {
        let now = Instant::now();
        let awaited = self.chunks.iter().filter(|(_, chunk)| chunk.is_awaited(now));
        awaited.map(|(id, chunk)| u64::from(chunk.end - id.1)).sum()
    }

    /// Evicts the least recently used chunks, except `but`, down to the budget. Chunks that await a
    /// reader are evicted last. Behind a reader that is alone, less is kept.
    pub(super) fn evict(&mut self, budget: u64, but: ChunkId) {
        let now = Instant::now();
        let likely = self.rereads.are_likely(budget);
        let behind = if likely { budget } else { budget.min(KEPT_ALONE) };
        let mut at_once = AT_ONCE;
        let passed = self.chunks.iter().filter(|(id, chunk)| chunk.is_passed() && **id != but);
        let mut passed: u64 = passed.map(|(id, chunk)| chunk.bytes(*id)).sum();
        while self.bytes > budget || (passed > behind && at_once > 0) {
            let any = self.bytes > budget;
            at_once -= usize::from(!any);
            let kept = self.chunks.iter().filter(|(id, chunk)| {
                **id != but && (chunk.is_passed() || (any && chunk.is_kept()))
            });
            let Some(oldest) = kept
                .min_by_key(|(_, chunk)| (chunk.is_awaited(now), chunk.used))
                .map(|(id, _)| *id)
            else {
                return;
            };
            let Some(chunk) = self.chunks.remove(&oldest) else { return };
            let bytes = chunk.bytes(oldest);
            self.bytes -= bytes;
            if chunk.is_passed() {
                passed -= bytes;
                self.rereads.evicted(oldest.0, oldest.1..chunk.end, budget);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use esker_disk::AlignedBuf;

    use super::*;
    use crate::read::cache::cached_chunk::AWAITED_FOR;

    /// Loaded chunks of a megabyte, after `read_once` chunks that were read once.
    fn loaded(chunks: u64, read_once: u32, awaited: Option<Instant>) -> State {
        let mut state = State::default();
        for used in 0..chunks {
            let chunk = Chunk {
                end: CHUNK_BYTES,
                most: CHUNK_BYTES,
                content: Content::Loaded(Arc::new(AlignedBuf::new(1)), CHUNK_BYTES),
                used,
                awaited,
                listed: true,
                wakers: Vec::new(),
            };
            state.chunks.insert((used, 0), chunk);
            state.bytes += u64::from(CHUNK_BYTES);
        }
        (0..read_once).for_each(|_| state.rereads.first());
        state
    }

    fn five(read_once: u32, awaited: Option<Instant>) -> State {
        loaded(5, read_once, awaited)
    }

    fn left(mut state: State, budget: u64) -> Vec<u64> {
        state.evict(budget, (4, 0));
        assert_eq!(state.bytes, state.chunks.len() as u64 * u64::from(CHUNK_BYTES));
        state.chunks.keys().map(|(segment, _)| *segment).collect()
    }

    #[test]
    fn two_chunks_are_kept_behind_a_reader_that_is_alone() {
        let budget = 16 * u64::from(CHUNK_BYTES);
        assert_eq!(left(five(1_000, None), budget), [2, 3, 4]);
        assert_eq!(left(five(0, None), budget), [0, 1, 2, 3, 4]);
        assert_eq!(left(five(1_000, None), budget / 16), [4]);
    }

    #[test]
    fn a_large_cache_shrinks_by_few_chunks_a_load() {
        let mut state = loaded(40, 1_000, None);
        for left in [36, 32, 28] {
            state.evict(64 * u64::from(CHUNK_BYTES), (39, 0));
            assert_eq!(state.chunks.len(), left);
        }
        // What exceeds the budget goes at once.
        state.evict(10 * u64::from(CHUNK_BYTES), (39, 0));
        assert!(state.chunks.len() <= 10, "{}", state.chunks.len());
    }

    #[test]
    fn chunks_that_a_slow_reader_has_not_reached_are_kept() {
        let long_ago = Instant::now().checked_sub(2 * AWAITED_FOR);
        assert!(long_ago.is_some());
        assert_eq!(left(five(1_000, long_ago), 16 * u64::from(CHUNK_BYTES)), [0, 1, 2, 3, 4]);
        assert_eq!(left(five(1_000, long_ago), 3 * u64::from(CHUNK_BYTES)), [2, 3, 4]);
    }
}
