//! Preallocation: creates segments before they are needed, and prewrites blocks, because
//! overwriting a written block costs half as much as writing a fresh one.
//!
//! Commits and prewriting take disjoint ranges from one frontier. A commit enters its range here
//! before it writes. A prewrite takes only blocks past every entered range. A commit whose range is
//! being prewritten waits for that one write.
//!
//! While commits are small, prewriting stays a little ahead of them. After a burst, once the log
//! was idle for a second, it continues until the next burst of that size finds written blocks, also
//! in the next segment. It does so chunk by chunk, and stops when a commit comes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use esker_disk::planted::{Bug, is_planted};
use esker_disk::{AlignedBuf, File};
use parking_lot::{Condvar, Mutex};

use crate::format::BLOCK_BYTES;

/// Commits of this size and above gain nothing from prewritten blocks.
const LARGE_COMMIT_BYTES: u64 = 64 << 10;
/// The least and the most bytes kept prewritten ahead of the log. Opening prewrites the least.
const AHEAD_MIN: u32 = 128 << 10;
const AHEAD_MAX: u32 = 16 << 20;
/// The least bytes of a burst, and the most bytes of the prewriting after it.
const BURST_MIN: u64 = 256 << 10;
const BURST_MAX: u64 = 64 << 20;
/// A log without a commit for this long is idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// The most bytes of one prewrite after a burst: a commit may wait for it.
const IDLE_PREWRITE_BYTES_MAX: u32 = 256 << 10;
/// The most bytes of one prewrite.
pub(crate) const PREWRITE_BYTES_MAX: u32 = 1 << 20;

/// A segment file that exists under its durable name and has no header yet.
#[derive(Debug)]
pub(crate) struct ReadySegment {
    pub(crate) writer: Arc<dyn File>,
    pub(crate) reader: Arc<dyn File>,
    /// Blocks below this offset were written at some point in the life of the file.
    pub(crate) written_to: u32,
    /// Units may be placed below this offset.
    pub(crate) limit: u32,
}

#[derive(Debug)]
pub(crate) struct Preallocator {
    state: Mutex<State>,
    cleared: Condvar,
    prewrites: bool,
    /// The end of prewriting: blocks from this offset on are not prewritten.
    most: u32,
}

#[derive(Debug, Default)]
struct State {
    segment: u64,
    /// Blocks below this offset were written before.
    written_to: u32,
    /// Commits have entered every block below this offset.
    entered_to: u32,
    /// Units may be placed below this offset.
    limit: u32,
    /// The range that is being prewritten, and its segment.
    busy: Option<(u64, Range<u32>)>,
    /// Segments that the committer has yet to enter. The core places units in no others, so there
    /// are at most as many as units in memory, plus one.
    ready: VecDeque<(u64, ReadySegment)>,
    /// The segment and its `limit` at the last attempt to preallocate that got nothing.
    tried: (u64, u32),
    /// A moving average of the commit size, and recently entered bytes, halved at each prewrite.
    commit_size: u64,
    recent: u64,
    /// Bytes entered since the log was last idle, and as many of them as the last look found.
    burst: u64,
    looked_at: u64,
    /// The time of the next check; `None` before a burst.
    next_look: Option<Duration>,
    closed: bool,
}

/// The work that is due for a log that had a burst.
#[derive(Debug)]
pub(crate) enum AfterBurst<'a> {
    Nothing,
    /// To look again at this time, on the clock of the engine.
    Look(Duration),
    /// To prewrite, and to look again at once.
    Prewrite(PrewriteRange<'a>),
}

impl Preallocator {
    /// The log continues in `segment` at `end`, with nothing preallocated past that.
    pub(crate) fn new(segment: u64, end: u32, prewrites: bool, most: u32) -> Self {
        let (written_to, entered_to, limit) = (end, end, end);
        let commit_size = 4096;
        let state =
            State { segment, written_to, entered_to, limit, commit_size, ..State::default() };
        Self { state: Mutex::new(state), cleared: Condvar::new(), prewrites, most }
    }

    /// Enters the range of a commit: no later prewrite touches it. Waits for one that does.
    pub(crate) fn wait_clear(&self, segment: u64, range: &Range<u32>) {
        let mut state = self.state.lock();
        if state.segment != segment {
            return;
        }
        state.entered_to = state.entered_to.max(range.end);
        let len = u64::from(range.end - range.start);
        state.commit_size = (state.commit_size * 7 + len) / 8;
        state.recent += len;
        state.burst += len;
        let touches = |busy: &(u64, Range<u32>)| busy.0 == segment && busy.1.start < range.end;
        while state.busy.as_ref().is_some_and(touches) {
            self.cleared.wait(&mut state);
        }
    }

    /// Switches commits to this segment.
    pub(crate) fn enter(&self, segment: u64, written_to: u32, limit: u32) {
        let mut state = self.state.lock();
        while state.busy.is_some() {
            self.cleared.wait(&mut state);
        }
        state.segment = segment;
        state.written_to = written_to;
        state.limit = limit;
        // The header occupies the first block.
        state.entered_to = BLOCK_BYTES;
    }

    /// Whether prewriting, or preallocating, is due, or the wait for the end of a burst.
    pub(crate) fn needs_maintenance(&self) -> bool {
        let state = self.state.lock();
        let short = state.entered_to > state.limit / 2
            && state.ready.is_empty()
            && state.tried != (state.segment, state.limit);
        let prewrites = || state.busy.is_none() && state.wants(self.most).is_some();
        short || (self.prewrites && (state.begins_burst() || prewrites()))
    }

    /// Returns the work that is due after a burst. `now` is the time on the clock of the engine.
    pub(crate) fn after_burst(&self, now: Duration) -> AfterBurst<'_> {
        let mut state = self.state.lock();
        if !self.prewrites || state.closed {
            return AfterBurst::Nothing;
        }
        let is_idle = match state.next_look {
            None if state.begins_burst() => false,
            Some(at) if now >= at => state.looked_at == state.burst && state.busy.is_none(),
            None | Some(_) => return AfterBurst::Nothing,
        };
        if !is_idle {
            state.looked_at = state.burst;
            state.next_look = Some(now + IDLE_AFTER);
            return AfterBurst::Look(now + IDLE_AFTER);
        }
        let Some((segment, range)) = state.wants_after_burst(self.most) else {
            state.end_burst();
            return AfterBurst::Nothing;
        };
        state.busy = Some((segment, range.clone()));
        AfterBurst::Prewrite(PrewriteRange { preallocator: self, segment, range })
    }

    /// Prewriting after a burst failed. The next burst begins now.
    pub(crate) fn end_burst(&self) {
        self.state.lock().end_burst();
    }

    /// Reserving ahead had no effect. Prevents another attempt until the segment or its limit
    /// changes.
    pub(crate) fn tried(&self) {
        let mut state = self.state.lock();
        state.tried = (state.segment, state.limit);
    }

    /// Takes the next range to prewrite. No other prewrite starts, and no commit proceeds into the
    /// range, until the returned value is dropped.
    pub(crate) fn next_range(&self) -> Option<PrewriteRange<'_>> {
        let mut state = self.state.lock();
        if !self.prewrites || state.closed || state.busy.is_some() {
            return None;
        }
        let range = state.wants(self.most)?;
        state.recent /= 2;
        let segment = state.segment;
        state.busy = Some((segment, range.clone()));
        Some(PrewriteRange { preallocator: self, segment, range })
    }

    /// Adds the next segment, which was created.
    pub(crate) fn made(&self, number: u64, ready: ReadySegment) {
        self.state.lock().ready.push_back((number, ready));
    }

    /// Records that a segment is preallocated up to this offset.
    pub(crate) fn extended(&self, segment: u64, limit: u32) {
        let mut state = self.state.lock();
        if let Some((_, ready)) = state.ready.iter_mut().find(|(number, _)| *number == segment) {
            ready.limit = limit;
        } else if state.segment == segment {
            state.limit = limit;
        }
    }

    /// Gives the segment with this number to the committer, which must enter it.
    pub(crate) fn take(&self, number: u64) -> Option<ReadySegment> {
        let mut state = self.state.lock();
        let at = state.ready.iter().position(|(ready, _)| *ready == number)?;
        state.ready.remove(at).map(|(_, ready)| ready)
    }

    /// Stops all preallocation, and returns once no prewrite is running. Returns the unused
    /// segments, for removal.
    pub(crate) fn close(&self) -> VecDeque<(u64, ReadySegment)> {
        let mut state = self.state.lock();
        state.closed = true;
        while state.busy.is_some() {
            self.cleared.wait(&mut state);
        }
        std::mem::take(&mut state.ready)
    }
}

/// The file and the zeros of a prewrite, kept for the ranges that follow it.
#[derive(Debug)]
pub(crate) struct Prewriter {
    pub(super) segment: u64,
    pub(super) file: Arc<dyn File>,
    pub(super) zeros: AlignedBuf,
}

/// A range that is being prewritten. It counts as written even if the prewrite failed, so that it
/// is not tried again.
#[derive(Debug)]
pub(crate) struct PrewriteRange<'a> {
    preallocator: &'a Preallocator,
    pub(crate) segment: u64,
    pub(crate) range: Range<u32>,
}

impl Drop for PrewriteRange<'_> {
    fn drop(&mut self) {
        let mut state = self.preallocator.state.lock();
        if let Some((_, ready)) = state.ready.iter_mut().find(|(number, _)| *number == self.segment)
        {
            ready.written_to = ready.written_to.max(self.range.end);
        } else if state.segment == self.segment {
            state.written_to = state.written_to.max(self.range.end);
        }
        state.busy = None;
        self.preallocator.cleared.notify_all();
    }
}

impl State {
    fn begins_burst(&self) -> bool {
        self.next_look.is_none() && self.burst >= BURST_MIN
    }

    fn end_burst(&mut self) {
        (self.burst, self.next_look) = (0, None);
    }

    /// The next range to prewrite until as much is ahead as the burst had: in the segment that the
    /// log continues in, and then in those that follow.
    fn wants_after_burst(&self, most: u32) -> Option<(u64, Range<u32>)> {
        let mut wanted = self.burst.min(BURST_MAX);
        let here = (self.segment, self.entered_to, self.written_to, self.limit);
        let ready = self.ready.iter();
        let ready = ready.map(|(number, next)| (*number, BLOCK_BYTES, next.written_to, next.limit));
        for (segment, entered_to, written_to, limit) in std::iter::once(here).chain(ready) {
            let (start, limit) = (written_to.max(entered_to), limit.min(most));
            let ahead = u64::from(start - entered_to);
            if ahead < wanted && start < limit {
                let len = (wanted - ahead).min(u64::from(IDLE_PREWRITE_BYTES_MAX)) as u32;
                return Some((
                    segment,
                    start..limit.min(start + len.next_multiple_of(BLOCK_BYTES)),
                ));
            }
            wanted = wanted.saturating_sub(ahead);
        }
        None
    }

    fn wants(&self, most: u32) -> Option<Range<u32>> {
        let limit = self.limit.min(most);
        if self.commit_size >= LARGE_COMMIT_BYTES {
            return None;
        }
        let recent = self.recent.min(u64::from(AHEAD_MAX)) as u32;
        let ahead = recent.next_multiple_of(BLOCK_BYTES).max(AHEAD_MIN);
        let start = self.written_to.max(self.entered_to);
        let left = start - self.entered_to;
        let from = match is_planted(Bug::DurableBlockOverwritten) {
            true => start.saturating_sub(BLOCK_BYTES).max(BLOCK_BYTES),
            false => start,
        };
        (left < ahead / 2 && start < limit)
            .then(|| from..limit.min(start + PREWRITE_BYTES_MAX.min(ahead)))
    }
}
