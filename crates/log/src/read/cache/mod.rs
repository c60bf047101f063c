//! Reading from the files: once for all readers of a place, ahead of them, and never so much that
//! the writer starves.
//!
//! A *piece* is a run of whole commit units, about a megabyte, that were read at once and checked. The
//! sparse index says where units begin, so that readers who come from different places soon ask for the
//! same pieces. A piece is loaded by the first who needs it: a thread that waits loads it by itself,
//! a task is woken when a thread of the engine has done so. Whoever goes on from one piece to the next
//! has the three behind it loaded meanwhile.
//!
//! The log may be open here, or another process may write it: a [`ReadSource`] either way. Of what another
//! process wrote since it was looked at whole, no index says where units begin. A piece there is *open*: it is
//! cut anywhere, and once it is read the last whole unit in it is its end, and the next piece begins there. So
//! one such piece is loaded ahead.
//!
//! **Bounds.** At most [`LOADS`] pieces are being read at a time, and pieces that nobody holds take no
//! more than the budget. A piece that a reader holds stays as long as its batches do, and is that
//! reader's: one piece each. What is loaded ahead takes no more than half of the budget until its reader
//! comes, and goes last: however many readers there are, none has loaded what is gone before it comes.
//!
//! **Pace.** While commits are made, a load begins no sooner than three times the length of a load
//! after the last one ended: the disk is the writer's for the rest of the time.
//!
//! What does not check is not kept: the reader then looks for itself and says what is wrong.

mod chunks;
mod throttle;

use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use esker_disk::{AlignedBuf, read_full_at};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::format::decode::check_unit;
use crate::format::unit::UnitKind;
use crate::format::{BLOCK, UnitHeader};
use crate::read::batch::Memory;
use crate::read::source::{ReadSource, Wait, Want};
use crate::runtime::waiters::wake;
use crate::store::segment_table::Segment;
use chunks::{ChunkId, Content, Lookup, State};

/// Loads at a time.
const LOADS: usize = 4;

#[derive(Debug)]
pub(crate) struct ReadCache {
    state: Mutex<State>,
    loaded: Condvar,
    /// Bytes of pieces kept for others.
    budget: u64,
}

impl ReadCache {
    pub(crate) fn new(budget: u64) -> Self {
        Self { state: Mutex::default(), loaded: Condvar::new(), budget }
    }

    /// Sound units from this offset on, the bytes below `end` being durable. `None` where the reader
    /// has to look for itself. With `ahead` what lies behind is loaded meanwhile.
    pub(crate) fn units(
        &self,
        log: &dyn ReadSource,
        want: &Want<'_>,
        wait: Wait<'_>,
    ) -> Poll<Option<(Memory, Range<u32>)>> {
        let manual = log.is_manual();
        // The caller's code clones and drops it, outside the lock.
        let mut waker = match wait {
            Wait::Wake(waker) => Some(waker.clone()),
            Wait::Block => None,
        };
        let mut state = self.state.lock();
        let found = loop {
            let (place, look) = state.look(want);
            match (look, wait) {
                (Lookup::Loaded(found), _) => break found,
                (Lookup::Queued, Wait::Wake(_)) if !manual => {
                    state.wake(place, &mut waker);
                    state.queue(place);
                    if log.ask_to_load() {
                        return Poll::Pending;
                    }
                    state = self.load(log, state, place);
                }
                (Lookup::Loading, Wait::Wake(_)) => {
                    state.wake(place, &mut waker);
                    return Poll::Pending;
                }
                (Lookup::Queued, _) => state = self.load(log, state, place),
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

    /// Bytes of the pieces that are kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Loads what comes next in the queue, on a thread of the engine.
    pub(crate) fn load_next(&self, log: &dyn ReadSource) {
        let mut state = self.state.lock();
        let Some(place) = state.queue.pop_front() else { return };
        if !state.queue.is_empty() {
            log.ask_to_load();
        }
        drop(self.load(log, state, place));
    }

    /// Nobody loads what stands in the queue any more: whoever waits looks again, for a load under way
    /// too, which may take as long as the disk likes.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.queue.clear();
        let mut wakers = Vec::new();
        state.pieces.retain(|_, piece| {
            wakers.append(&mut piece.wakers);
            !matches!(piece.content, Content::Queued(_))
        });
        drop(state);
        self.loaded.notify_all();
        wakers.into_iter().for_each(wake);
    }

    /// Segments below this number left the log.
    pub(crate) fn forget_below(&self, segment: u64) {
        let mut guard = self.state.lock();
        let State { pieces, bytes, .. } = &mut *guard;
        pieces.retain(|place, piece| {
            let stays = place.0 >= segment || !piece.is_kept();
            *bytes -= if stays { 0 } else { piece.bytes() };
            stays
        });
    }

    /// Loads a piece, if nobody does yet once there is room for another load.
    fn load<'a>(
        &'a self,
        log: &dyn ReadSource,
        mut state: MutexGuard<'a, State>,
        place: ChunkId,
    ) -> MutexGuard<'a, State> {
        while state.loading >= LOADS {
            self.loaded.wait(&mut state);
        }
        let Some(piece) = state.pieces.get_mut(&place) else { return state };
        let Content::Queued(segment) = &piece.content else { return state };
        let (segment, end, most) = (Arc::clone(segment), piece.end, piece.most);
        piece.content = Content::Loading;
        state.loading += 1;
        let spare = state.take_spare((end - place.1) as usize);
        drop(state);
        let mut loading = Loading { cache: self, place, content: Content::Unsound, took: None };
        // Looking at the mark may be a read, too.
        let mark = log.mark();
        let pause = self.state.lock().pace.pause(mark);
        if !log.is_manual() && !pause.is_zero() {
            std::thread::sleep(pause);
        }
        let start = Instant::now();
        if let Some((buffer, valid)) = read(&segment, place.1..end, most, spare) {
            loading.content = Content::Loaded(Arc::new(buffer), valid);
        }
        loading.took = Some(start.elapsed());
        drop(segment);
        drop(loading);
        self.state.lock()
    }
}

/// A load under way. However it ends, those who wait hear of it.
struct Loading<'a> {
    cache: &'a ReadCache,
    place: ChunkId,
    content: Content,
    took: Option<Duration>,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let mut guard = self.cache.state.lock();
        let state = &mut *guard;
        state.loading -= 1;
        state.clock += 1;
        if let Some(took) = self.took {
            state.pace.ended(took);
        }
        let mut wakers = Vec::new();
        if let Some(piece) = state.pieces.get_mut(&self.place) {
            piece.content = std::mem::replace(&mut self.content, Content::Unsound);
            piece.used = state.clock;
            if let Content::Loaded(_, valid) = piece.content
                && piece.is_open()
            {
                (piece.end, piece.most) = (valid, valid);
            }
            wakers = std::mem::take(&mut piece.wakers);
            state.bytes += piece.bytes();
        }
        state.evict(self.cache.budget, self.place);
        drop(guard);
        self.cache.loaded.notify_all();
        wakers.into_iter().for_each(wake);
    }
}

/// Reads a range of a segment, or one unit that is longer and ends at `most` at the latest, and checks the
/// units; where the sound ones end, if there are any.
fn read(
    segment: &Segment,
    range: Range<u32>,
    most: u32,
    spare: Option<AlignedBuf>,
) -> Option<(AlignedBuf, u32)> {
    let len = (range.end - range.start) as usize;
    let mut buffer = spare.unwrap_or_else(|| AlignedBuf::new(len));
    let wanted = &mut buffer[..len.next_multiple_of(BLOCK as usize)];
    let got = read_full_at(&*segment.reader, wanted, u64::from(range.start)).ok()?.min(len);
    if most > range.end
        && let Ok((header, _)) = UnitHeader::parse(&buffer[..got], segment.salt, range.start)
        && header.kind == UnitKind::Data
        && (range.end - range.start + 1..=most - range.start).contains(&header.span())
    {
        let end = range.start + header.span();
        return read(segment, range.start..end, end, None);
    }
    let mut at = 0;
    while at < got {
        let unit = check_unit(&buffer[at..got], segment.salt, range.start + at as u32, |_| {});
        match unit {
            Ok((header, _)) if header.kind == UnitKind::Data => at += header.span() as usize,
            // A gap, or damage: the reader that comes to it finds out.
            _ => break,
        }
    }
    (at > 0).then(|| (buffer, range.start + at as u32))
}
