//! Reading from the files: once for all readers of a place, ahead of them, and never so much that
//! the writer starves.
//!
//! A *piece* is a run of whole commit units, about a megabyte, that were read at once and checked. The
//! sparse index says where units begin, so that readers who come from different places soon ask for the
//! same pieces. A piece is loaded by the first who needs it: a thread that waits loads it by itself,
//! a task is woken when a thread of the engine has done so. Whoever goes on from one piece to the next
//! has the three behind it loaded meanwhile.
//!
//! The log may be open here, or another process may write it: a [`Ground`] either way. Of what another
//! process wrote since it was looked at whole, no index says where units begin. A piece there is *open*: it is
//! cut anywhere, and once it is read the last whole unit in it is its end, and the next piece begins there. So
//! one such piece is loaded ahead.
//!
//! **Bounds.** At most [`LOADS`] pieces are being read at a time, and pieces that nobody holds take no
//! more than the budget. A piece that a reader holds stays as long as its batches do, and is that
//! reader's: one piece each. What is loaded ahead takes no more than half of the budget until its reader
//! comes, and goes last: however many readers there are, none has loaded what is gone before it comes.
//!
//! **Pace.** While commits are made, a load begins no sooner than [`REST`] times the length of a load
//! after the last one ended: the disk is the writer's for the rest of the time.
//!
//! What does not check is not kept: the reader then looks for itself and says what is wrong.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use esker_disk::{AlignedBuf, read_full_at};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::batch::Memory;
use crate::cursor::Source;
use crate::format::unit::UnitKind;
use crate::format::walk::check_unit;
use crate::format::{BLOCK, UnitHeader};
use crate::segments::Segment;

/// Bytes read at once, unless a unit is larger.
const PIECE: u32 = 1 << 20;
/// Loads at a time.
const LOADS: usize = 4;
/// Pieces that are loaded ahead of a reader.
const AHEAD: usize = 3;
/// How much longer than a load the pause behind it is, while commits are made.
const REST: u32 = 3;
/// No commit for so long: the disk is free.
const QUIET: Duration = Duration::from_millis(10);
/// However slow the disk, a pause ends.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// A reader that did not come for so long to what was loaded ahead of it is not waited for.
const GONE: Duration = Duration::from_secs(1);
/// Buffers kept for the next loads; each is as large as the piece that it held.
const SPARE: usize = 4;

/// Where a piece begins: segment and offset.
type Place = (u64, u32);

/// A log whose readers share what they read.
pub(crate) trait Ground: Source {
    /// Whether there are no threads but those of the callers.
    fn is_manual(&self) -> bool;
    /// Asks another thread for [`Cold::load_next`]; `false` where there is none.
    fn ask_to_load(&self) -> bool;
    /// What moves with each commit.
    fn mark(&self) -> u64;
}

/// How a reader waits for a piece.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait<'a> {
    Block,
    Wake(&'a Waker),
}

/// What a reader wants.
#[derive(Debug)]
pub(crate) struct Want<'a> {
    pub(crate) segment: &'a Arc<Segment>,
    /// The start of a unit.
    pub(crate) offset: u32,
    /// Bytes below this are durable.
    pub(crate) end: u32,
    /// The reader will go on behind it.
    pub(crate) ahead: bool,
}

#[derive(Debug)]
pub(crate) struct Cold {
    state: Mutex<State>,
    loaded: Condvar,
    /// Bytes of pieces kept for others.
    budget: u64,
}

#[derive(Debug, Default)]
struct State {
    pieces: BTreeMap<Place, Piece>,
    /// Those that a thread of the engine is to load, in order.
    queue: VecDeque<Place>,
    loading: usize,
    bytes: u64,
    clock: u64,
    spare: Vec<AlignedBuf>,
    pace: Pace,
}

#[derive(Debug)]
struct Piece {
    end: u32,
    /// How far it may go. Further than `end` while it is open.
    most: u32,
    content: Content,
    used: u64,
    /// A reader is to come to it, since then.
    awaited: Option<Instant>,
    /// It was put in the queue.
    listed: bool,
    wakers: Vec<Waker>,
}

#[derive(Debug)]
enum Content {
    Queued(Arc<Segment>),
    Loading,
    /// Sound units from the beginning to here.
    Loaded(Arc<AlignedBuf>, u32),
    /// Not one sound unit, or it could not be read.
    Unsound,
}

/// How a piece was found.
enum Look {
    Queued,
    Loading,
    /// `None` where there is nothing sound at the offset.
    Loaded(Option<(Memory, Range<u32>)>),
}

/// When the next load may begin.
#[derive(Debug, Default)]
struct Pace {
    /// The durable mark when it was last seen to move.
    mark: u64,
    moved: Option<Instant>,
    not_before: Option<Instant>,
    /// A moving average.
    load: Duration,
}

impl Cold {
    pub(crate) fn new(budget: u64) -> Self {
        Self { state: Mutex::default(), loaded: Condvar::new(), budget }
    }

    /// Sound units from this offset on, the bytes below `end` being durable. `None` where the reader
    /// has to look for itself. With `ahead` what lies behind is loaded meanwhile.
    pub(crate) fn units(
        &self,
        log: &dyn Ground,
        want: &Want<'_>,
        wait: Wait<'_>,
    ) -> Poll<Option<(Memory, Range<u32>)>> {
        let manual = log.is_manual();
        let mut state = self.state.lock();
        let found = loop {
            let (place, look) = state.look(want);
            match (look, wait) {
                (Look::Loaded(found), _) => break found,
                (Look::Queued, Wait::Wake(waker)) if !manual => {
                    state.wake(place, waker);
                    state.queue(place);
                    if log.ask_to_load() {
                        return Poll::Pending;
                    }
                    state = self.load(log, state, place);
                }
                (Look::Loading, Wait::Wake(waker)) => {
                    state.wake(place, waker);
                    return Poll::Pending;
                }
                (Look::Queued, _) => state = self.load(log, state, place),
                (Look::Loading, Wait::Block) => self.loaded.wait(&mut state),
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
    pub(crate) fn load_next(&self, log: &dyn Ground) {
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
        wakers.into_iter().for_each(Waker::wake);
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
        log: &dyn Ground,
        mut state: MutexGuard<'a, State>,
        place: Place,
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
        let mut loading = Loading { cold: self, place, content: Content::Unsound, took: None };
        // Looking at the mark may be a read, too.
        let mark = log.mark();
        let pause = self.state.lock().pace.pause(mark);
        if !log.is_manual() && !pause.is_zero() {
            std::thread::sleep(pause);
        }
        let start = Instant::now();
        if let Some((buffer, sound)) = read(&segment, place.1..end, most, spare) {
            loading.content = Content::Loaded(Arc::new(buffer), sound);
        }
        loading.took = Some(start.elapsed());
        drop(segment);
        drop(loading);
        self.state.lock()
    }
}

/// A load under way. However it ends, those who wait hear of it.
struct Loading<'a> {
    cold: &'a Cold,
    place: Place,
    content: Content,
    took: Option<Duration>,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        let mut guard = self.cold.state.lock();
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
            if let Content::Loaded(_, sound) = piece.content
                && piece.is_open()
            {
                (piece.end, piece.most) = (sound, sound);
            }
            wakers = std::mem::take(&mut piece.wakers);
            state.bytes += piece.bytes();
        }
        state.evict(self.cold.budget, self.place);
        drop(guard);
        self.cold.loaded.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Piece {
    fn is_kept(&self) -> bool {
        matches!(self.content, Content::Loaded(..) | Content::Unsound)
    }

    /// Whether a reader is still expected.
    fn is_awaited(&self, now: Instant) -> bool {
        self.awaited.is_some_and(|since| now.saturating_duration_since(since) < GONE)
    }

    /// Whether nobody knows yet where it ends.
    fn is_open(&self) -> bool {
        self.most > self.end
    }

    fn bytes(&self) -> u64 {
        match &self.content {
            Content::Loaded(buffer, _) => buffer.len() as u64,
            _ => 0,
        }
    }
}

impl State {
    /// How it stands with the piece over an offset. A new one is there if none was.
    fn look(&mut self, want: &Want<'_>) -> (Place, Look) {
        self.clock += 1;
        let place = self.over(want.segment.number(), want.offset).unwrap_or_else(|| {
            self.insert(want.segment, want.offset, want.end);
            (want.segment.number(), want.offset)
        });
        let Some(piece) = self.pieces.get_mut(&place) else { return (place, Look::Loaded(None)) };
        piece.used = self.clock;
        if let Content::Loaded(..) = piece.content {
            piece.awaited = None;
        }
        let look = match &piece.content {
            Content::Queued(_) => Look::Queued,
            Content::Loading => Look::Loading,
            Content::Loaded(buffer, sound) => Look::Loaded(
                (want.offset < *sound)
                    .then(|| (Memory::Read(Arc::clone(buffer), place.1), want.offset..*sound)),
            ),
            Content::Unsound => {
                self.pieces.remove(&place);
                Look::Loaded(None)
            }
        };
        (place, look)
    }

    /// The place of the piece over this offset.
    fn over(&self, segment: u64, offset: u32) -> Option<Place> {
        let (place, piece) = self.pieces.range(..=(segment, offset)).next_back()?;
        (place.0 == segment && offset < piece.end).then_some(*place)
    }

    /// Puts a piece where none is.
    fn insert(&mut self, segment: &Arc<Segment>, offset: u32, end: u32) {
        let content = Content::Queued(Arc::clone(segment));
        let (end, most) = match segment.units_until(offset, PIECE, end) {
            Some(end) => (end, end),
            None => (end.min(offset.saturating_add(PIECE)), end),
        };
        let (used, wakers) = (self.clock, Vec::new());
        let piece = Piece {
            end,
            most,
            content,
            used,
            awaited: Some(Instant::now()),
            listed: false,
            wakers,
        };
        self.pieces.insert((segment.number(), offset), piece);
    }

    fn wake(&mut self, place: Place, waker: &Waker) {
        if let Some(Piece { wakers, .. }) = self.pieces.get_mut(&place)
            && !wakers.iter().any(|old| old.will_wake(waker))
        {
            wakers.push(waker.clone());
        }
    }

    fn queue(&mut self, place: Place) {
        let piece = self.pieces.get_mut(&place);
        if piece.is_some_and(|piece| !std::mem::replace(&mut piece.listed, true)) {
            self.queue.push_back(place);
        }
    }

    /// Queues what lies behind this offset, as long as no more than so many bytes wait for a reader;
    /// whether there was anything.
    fn ahead(&mut self, log: &dyn Ground, want: &Want<'_>, offset: u32, most: u64) -> bool {
        let (mut segment, mut offset, mut end) = (Arc::clone(want.segment), offset, want.end);
        let mut queued = false;
        for _ in 0..AHEAD {
            if offset >= end {
                let Some(next) = log.segments().after(segment.number()) else { break };
                (segment, offset) = (next, BLOCK);
                end = log.segments().readable(&segment, log.limit().0);
            }
            // What the tail holds need not be read.
            if offset >= end || log.window(segment.number(), offset).is_some() {
                break;
            }
            let there = match self.over(segment.number(), offset) {
                Some(there) => there,
                None if self.awaited() >= most => break,
                None => {
                    self.insert(&segment, offset, end);
                    self.queue((segment.number(), offset));
                    queued = true;
                    (segment.number(), offset)
                }
            };
            match self.pieces.get(&there) {
                Some(piece) if !piece.is_open() => offset = piece.end,
                _ => break,
            }
        }
        queued
    }

    /// Bytes that readers are to come to.
    fn awaited(&self) -> u64 {
        let now = Instant::now();
        let awaited = self.pieces.iter().filter(|(_, piece)| piece.is_awaited(now));
        awaited.map(|(place, piece)| u64::from(piece.end - place.1)).sum()
    }

    /// Lets go of the pieces that nobody used for longest, but for this one. Those that readers
    /// are to come to go last.
    fn evict(&mut self, budget: u64, but: Place) {
        let now = Instant::now();
        while self.bytes > budget {
            let kept =
                self.pieces.iter().filter(|(place, piece)| piece.is_kept() && **place != but);
            let Some(oldest) = kept
                .min_by_key(|(_, piece)| (piece.is_awaited(now), piece.used))
                .map(|(place, _)| *place)
            else {
                return;
            };
            let Some(piece) = self.pieces.remove(&oldest) else { return };
            self.bytes -= piece.bytes();
            if let Content::Loaded(buffer, _) = piece.content
                && let Some(buffer) = Arc::into_inner(buffer)
            {
                self.keep_spare(buffer);
            }
        }
    }

    /// A buffer for a load, if there is one: memory that was never touched costs as much as the read.
    fn take_spare(&mut self, len: usize) -> Option<AlignedBuf> {
        let fits = self.spare.iter().position(|spare| spare.len() >= len)?;
        Some(self.spare.swap_remove(fits))
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

impl Pace {
    /// How long the next load has to wait.
    fn pause(&mut self, mark: u64) -> Duration {
        let now = Instant::now();
        if self.mark != mark {
            // The first look says nothing about when it moved.
            self.moved = (self.mark != 0).then_some(now);
            self.mark = mark;
        }
        if self.moved.is_none_or(|moved| now - moved > QUIET) {
            self.not_before = None;
            return Duration::ZERO;
        }
        let start = self.not_before.map_or(now, |at| at.max(now));
        self.not_before = Some(start + self.load * (1 + REST));
        (start - now).min(PAUSE_MAX)
    }

    fn ended(&mut self, took: Duration) {
        self.load = if self.load.is_zero() { took } else { (self.load * 7 + took) / 8 };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_rests_while_nobody_commits() {
        let mut pace = Pace::default();
        for _ in 0..5 {
            assert_eq!(pace.pause(7), Duration::ZERO);
            pace.ended(Duration::from_secs(60));
        }
        pace.pause(8);
        assert_eq!(pace.pause(9), PAUSE_MAX);
        // The last commit was a while ago.
        pace.moved = pace.moved.and_then(|moved| moved.checked_sub(2 * QUIET));
        assert_eq!(pace.pause(9), Duration::ZERO);
        assert_eq!(pace.not_before, None);
    }

    #[test]
    fn while_commits_are_made_each_load_leaves_the_disk_for_longer_than_it_took() {
        let load = Duration::from_secs(60);
        let mut pace = Pace { mark: 1, ..Pace::default() };
        pace.ended(load);
        assert_eq!(pace.pause(2), Duration::ZERO);
        for mark in 3..6 {
            let before = pace.not_before;
            assert_eq!(pace.pause(mark), PAUSE_MAX);
            assert_eq!(pace.not_before, before.map(|at| at + load * (1 + REST)));
        }
    }
}
