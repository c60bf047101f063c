//! The chunks of the read cache: loaded, loading or queued. Decides which are evicted first.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use esker_disk::AlignedBuf;

use super::throttle::Throttle;
use crate::format::BLOCK;
use crate::read::batch::Memory;
use crate::read::source::{ReadSource, Want};
use crate::store::segment_table::Segment;

/// Bytes per read, unless a unit is larger.
const CHUNK: u32 = 1 << 20;
/// A chunk of this length is whole: units end where the sparse index says, every 64 KiB by default.
const WHOLE: usize = CHUNK as usize - (64 << 10);
/// The memory of three chunks: two huge pages. A chunk of one unit may be a little longer than
/// [`CHUNK`], and two units of that size have no room in a page.
const MEMORY_OF_THREE: usize = 4 << 20;
/// The number of chunks loaded ahead of a reader.
const AHEAD: usize = 6;
/// A chunk loaded ahead counts as awaited for this long; after that its reader is not expected.
const GONE: Duration = Duration::from_secs(1);
/// Buffers kept for the next loads; each is as large as the chunk that it held.
const SPARE: usize = 4;

/// The start of a chunk: segment and offset.
pub(super) type ChunkId = (u64, u32);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) chunks: BTreeMap<ChunkId, Chunk>,
    /// Chunks that an engine thread is to load, in order.
    pub(super) queue: VecDeque<ChunkId>,
    pub(super) loading: usize,
    pub(super) bytes: u64,
    pub(super) clock: u64,
    spare: Vec<AlignedBuf>,
    pub(super) throttle: Throttle,
}

#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) end: u32,
    /// The offset that it may extend to. Above `end` while the chunk is open.
    pub(super) most: u32,
    pub(super) content: Content,
    pub(super) used: u64,
    /// When a reader was first expected; `None` once it came.
    awaited: Option<Instant>,
    /// Whether it was ever put in the queue.
    listed: bool,
    pub(super) wakers: Vec<Waker>,
}

#[derive(Debug)]
pub(super) enum Content {
    Queued(Arc<Segment>),
    Loading,
    /// Valid units from the start of the chunk up to this offset.
    Loaded(Arc<AlignedBuf>, u32),
    /// It holds no valid unit, or could not be read.
    Invalid,
}

/// The result of looking up a chunk.
pub(super) enum Lookup {
    Queued,
    Loading,
    /// `None` if there is no valid unit at the offset.
    Loaded(Option<(Memory, Range<u32>)>),
}

impl Chunk {
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.content, Content::Loaded(..) | Content::Invalid)
    }

    /// Whether a reader is still expected.
    fn is_awaited(&self, now: Instant) -> bool {
        self.awaited.is_some_and(|since| now.saturating_duration_since(since) < GONE)
    }

    /// Whether the end of the chunk is still unknown.
    pub(super) fn is_open(&self) -> bool {
        self.most > self.end
    }

    /// The bytes of units in the chunk, which has this id. Its memory is up to half more.
    pub(super) fn bytes(&self, id: ChunkId) -> u64 {
        match self.content {
            Content::Loaded(_, valid) => u64::from(valid - id.1),
            _ => 0,
        }
    }
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
            chunk.awaited = None;
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
        let (end, most) = match segment.units_until(offset, CHUNK, end) {
            Some(end) => (end, end),
            None => (end.min(offset.saturating_add(CHUNK)), end),
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
        self.chunks.insert((segment.number(), offset), chunk);
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
        for _ in 0..AHEAD {
            if offset >= end {
                let Some(next) = log.segments().after(segment.number()) else { break };
                (segment, offset) = (next, BLOCK);
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
    /// reader are evicted last.
    pub(super) fn evict(&mut self, budget: u64, but: ChunkId) {
        let now = Instant::now();
        while self.bytes > budget {
            let kept = self.chunks.iter().filter(|(id, chunk)| chunk.is_kept() && **id != but);
            let Some(oldest) = kept
                .min_by_key(|(_, chunk)| (chunk.is_awaited(now), chunk.used))
                .map(|(id, _)| *id)
            else {
                return;
            };
            let Some(chunk) = self.chunks.remove(&oldest) else { return };
            self.bytes -= chunk.bytes(oldest);
            if let Content::Loaded(buffer, _) = chunk.content
                && let Some(buffer) = Arc::into_inner(buffer)
            {
                self.keep_spare(buffer);
            }
        }
    }

    /// A used buffer for a load, if there is one of which it fills two thirds. Fresh memory costs
    /// as much as the read itself.
    ///
    /// Buffers of whole chunks share huge pages, which are read several times as fast.
    pub(super) fn take_spare(&mut self, len: usize) -> Option<AlignedBuf> {
        let fits = |spare: &AlignedBuf| (len..=len + len / 2).contains(&spare.len());
        if !self.spare.iter().any(fits)
            && (WHOLE..=MEMORY_OF_THREE / 3 - BLOCK as usize).contains(&len)
        {
            self.spare.truncate(SPARE - 2);
            let parts = AlignedBuf::lazy_huge_parts(MEMORY_OF_THREE, 3);
            self.spare.extend(parts.into_iter().filter(fits));
        }
        Some(self.spare.swap_remove(self.spare.iter().position(fits)?))
    }

    fn keep_spare(&mut self, buffer: AlignedBuf) {
        let smaller = self.spare.iter().position(|spare| spare.len() < buffer.len());
        if self.spare.len() < SPARE {
            self.spare.push(buffer);
        } else if let Some(smaller) = smaller {
            self.spare[smaller] = buffer;
        }
    }
}
