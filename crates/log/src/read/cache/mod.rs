//! The read cache: reads each part of a file once for all its readers, reads ahead of them, and is
//! throttled so that the writer does not starve.
//!
//! A *chunk* is a run of whole commit units, about a megabyte, that were read at once and checked.
//! The sparse index gives the starts of units, so readers that come from different offsets soon ask
//! for the same chunks. A chunk is loaded by the first reader that needs it. A waiting thread loads
//! it itself; a task is woken when an engine thread has loaded it. For a reader that continues from
//! one chunk to the next, the next six are loaded meanwhile, in turn.
//!
//! The log is open in this process, or written by another process; either is a [`ReadSource`]. What
//! another process wrote since the log was last scanned as a whole has no index of unit starts. A
//! chunk there is *open*: it is cut at any offset. Once it is read, it ends at its last whole unit,
//! and the next chunk begins there. So only one such chunk is loaded ahead.
//!
//! **Bounds.** At most [`LOADS_MAX`] chunks are read at a time. Chunks that no reader holds take at
//! most the budget. A chunk that a reader holds lives as long as its batches and counts as that
//! reader's: one chunk each. Chunks loaded ahead take at most half of the budget and are evicted
//! last, until their reader comes or a second has passed. Otherwise readers at different positions
//! of a log with large units would evict each other's chunks and read them again. Behind a reader
//! that is alone, only two megabytes are kept: the less memory it moves through, the more of it
//! stays in the processor's caches.
//!
//! **Throttling.** While commits are running, each load is followed by a pause of three times its
//! duration. The disk is left to the writer for that time.
//!
//! Chunks that fail the check are not kept: the reader then reads the file itself and reports the
//! error.

mod cached_chunk;
mod chunks;
mod memory;
mod rereads;
mod throttle;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use esker_disk::{AlignedBuf, read_full_at};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::base::error::Result;
use crate::format::decode::check_unit;
use crate::format::unit::UnitKind;
use crate::format::{BLOCK_BYTES, UnitHeader};
use crate::read::batch::Memory;
use crate::read::cursor::read_units;
use crate::read::read_counts::ReadCounts;
use crate::read::source::{ReadSource, Wait, Want};
use crate::runtime::deferred_wakes::wake;
use crate::runtime::engine::{Engine, ReadWork};
use crate::store::segment_table::Segment;
use cached_chunk::{ChunkId, Content};
use chunks::{Lookup, State};
use memory::ChunkMemory;

/// The most concurrent loads.
const LOADS_MAX: usize = 4;

#[derive(Debug)]
pub(crate) struct ReadCache {
    state: Mutex<State>,
    loaded: Condvar,
    memory: ChunkMemory,
    /// Bytes of chunks kept for other readers.
    budget: u64,
    /// Whether the cache is in the engine's queue for reads.
    queued: AtomicBool,
    counts: Arc<ReadCounts>,
}

impl ReadCache {
    pub(crate) fn new(budget: u64, counts: Arc<ReadCounts>) -> Self {
        let (state, queued) = (Mutex::default(), AtomicBool::new(false));
        let memory = ChunkMemory::default();
        Self { state, loaded: Condvar::new(), memory, budget, queued, counts }
    }

    /// Valid units from this offset on; the bytes below `end` are durable. Units that do not check
    /// are read once more, to report what is wrong. With `ahead`, the following chunks are loaded
    /// meanwhile.
    pub(crate) fn units(
        &self,
        log: &dyn ReadSource,
        want: &Want<'_>,
        wait: Wait<'_>,
    ) -> Poll<Result<(Memory, Range<u32>)>> {
        self.cached(log, want, wait).map(|found| match found {
            Some(found) => Ok(found),
            None => read_units(want.segment, want.offset, want.end),
        })
    }

    /// Asks the engine for a thread that loads the queued chunks; `false` if there is none.
    pub(crate) fn request_load<W: ReadWork + 'static>(
        &self,
        engine: &Engine,
        source: &Weak<W>,
    ) -> bool {
        // A stopped engine does not execute queued reads.
        if engine.is_stopped() {
            return false;
        }
        let Some(source) = source.upgrade() else { return false };
        if self.queued.swap(true, SeqCst) || engine.read(source) {
            return true;
        }
        self.queued.store(false, SeqCst);
        false
    }

    /// `None` if the reader has to read the file itself.
    fn cached(
        &self,
        log: &dyn ReadSource,
        want: &Want<'_>,
        wait: Wait<'_>,
    ) -> Poll<Option<(Memory, Range<u32>)>> {
        let manual = log.is_manual();
        // Cloning and dropping a waker runs the caller's code, so it is done outside the lock.
        let mut waker = match wait {
            Wait::Wake(waker) => Some(waker.clone()),
            Wait::Block => None,
        };
        let mut state = self.state.lock();
        let found = loop {
            let (id, lookup) = state.lookup(want);
            match (lookup, wait) {
                (Lookup::Loaded(found), _) => break found,
                (Lookup::Queued, Wait::Wake(_)) if !manual => {
                    state.wake(id, &mut waker);
                    state.queue(id);
                    if log.ask_to_load() {
                        return Poll::Pending;
                    }
                    state = self.load(log, state, id);
                }
                (Lookup::Loading, Wait::Wake(_)) => {
                    state.wake(id, &mut waker);
                    return Poll::Pending;
                }
                (Lookup::Queued, _) => state = self.load(log, state, id),
                (Lookup::Loading, Wait::Block) => self.loaded.wait(&mut state),
            }
        };
        if let Some((_, offsets)) = found.as_ref().filter(|_| want.ahead && !manual) {
            let queued = state.ahead(log, want, offsets.end, self.budget / 2);
            drop(state);
            if queued && !log.ask_to_load() {
                self.abandon();
            }
        }
        Poll::Ready(found)
    }

    /// Bytes of the chunks that are kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Loads the next queued chunk, on an engine thread.
    pub(crate) fn load_next(&self, log: &dyn ReadSource) {
        self.queued.store(false, SeqCst);
        let mut state = self.state.lock();
        let Some(id) = state.queue.pop_front() else { return };
        if !state.queue.is_empty() {
            log.ask_to_load();
        }
        drop(self.load(log, state, id));
    }

    /// Drops the queue, because no thread will load it, and wakes all waiters to retry. This
    /// includes waiters for a running load, which may take arbitrarily long.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.queue.clear();
        let mut wakers = Vec::new();
        state.chunks.retain(|_, chunk| {
            wakers.append(&mut chunk.wakers);
            !matches!(chunk.content, Content::Queued(_))
        });
        drop(state);
        self.loaded.notify_all();
        wakers.into_iter().for_each(wake);
    }

    /// Evicts chunks of segments below this number, which left the log.
    pub(crate) fn forget_below(&self, segment: u64) {
        let mut guard = self.state.lock();
        let State { chunks, bytes, .. } = &mut *guard;
        chunks.retain(|id, chunk| {
            let stays = id.0 >= segment || !chunk.is_kept();
            *bytes -= if stays { 0 } else { chunk.bytes(*id) };
            stays
        });
    }

    /// Loads a chunk once fewer than [`LOADS_MAX`] loads are running, unless another thread got to
    /// it first.
    fn load<'a>(
        &'a self,
        log: &dyn ReadSource,
        mut state: MutexGuard<'a, State>,
        id: ChunkId,
    ) -> MutexGuard<'a, State> {
        while state.loading >= LOADS_MAX {
            self.loaded.wait(&mut state);
        }
        let Some(chunk) = state.chunks.get_mut(&id) else { return state };
        let Content::Queued(segment) = &chunk.content else { return state };
        let (segment, end, most) = (Arc::clone(segment), chunk.end, chunk.most);
        chunk.content = Content::Loading;
        state.loading += 1;
        drop(state);
        let mut loading = RunningLoad { cache: self, id, content: Content::Invalid, took: None };
        // Reading the watermark may be I/O as well.
        let watermark = log.mark();
        let pause = self.state.lock().throttle.pause(watermark);
        if !log.is_manual() && !pause.is_zero() {
            std::thread::sleep(pause);
        }
        let start = Instant::now();
        if let Some((buffer, valid)) = read(&self.memory, &segment, id.1..end, most) {
            self.counts.add(u64::from(valid - id.1));
            loading.content = Content::Loaded(Arc::new(buffer), valid);
        }
        loading.took = Some(start.elapsed());
        drop(segment);
        drop(loading);
        self.state.lock()
    }
}

/// A running load. However it ends, its waiters are woken.
struct RunningLoad<'a> {
    cache: &'a ReadCache,
    id: ChunkId,
    content: Content,
    took: Option<Duration>,
}

impl Drop for RunningLoad<'_> {
    fn drop(&mut self) {
        let mut guard = self.cache.state.lock();
        let state = &mut *guard;
        state.loading -= 1;
        state.clock += 1;
        if let Some(took) = self.took {
            state.throttle.ended(took);
        }
        let mut wakers = Vec::new();
        if let Some(chunk) = state.chunks.get_mut(&self.id) {
            chunk.content = std::mem::replace(&mut self.content, Content::Invalid);
            chunk.used = state.clock;
            if let Content::Loaded(_, valid) = chunk.content
                && chunk.is_open()
            {
                (chunk.end, chunk.most) = (valid, valid);
            }
            wakers = std::mem::take(&mut chunk.wakers);
            state.bytes += chunk.bytes(self.id);
        }
        state.evict(self.cache.budget, self.id);
        drop(guard);
        self.cache.loaded.notify_all();
        wakers.into_iter().for_each(wake);
    }
}

/// Reads a range of a segment and checks its units. If the first unit is longer, reads that unit
/// instead, if it ends at or below `most`. Returns the bytes and the offset where the valid units
/// end; `None` if there are none.
fn read(
    memory: &ChunkMemory,
    segment: &Segment,
    range: Range<u32>,
    most: u32,
) -> Option<(AlignedBuf, u32)> {
    let len = (range.end - range.start) as usize;
    let mut buffer = memory.take(len);
    let wanted = &mut buffer[..len.next_multiple_of(BLOCK_BYTES as usize)];
    let got = read_full_at(&*segment.reader, wanted, u64::from(range.start)).ok()?.min(len);
    if most > range.end
        && let Ok((header, _)) = UnitHeader::parse(&buffer[..got], segment.salt, range.start)
        && header.kind == UnitKind::Data
        && (range.end - range.start + 1..=most - range.start).contains(&header.span())
    {
        let end = range.start + header.span();
        drop(buffer);
        return read(memory, segment, range.start..end, end);
    }
    let mut at = 0;
    while at < got {
        let unit = check_unit(&buffer[at..got], segment.salt, range.start + at as u32, |_| {});
        match unit {
            Ok((header, _)) if header.kind == UnitKind::Data => at += header.span() as usize,
            // A gap, or corruption: the reader that reaches it reports it.
            _ => break,
        }
    }
    (at > 0).then(|| (buffer, range.start + at as u32))
}
