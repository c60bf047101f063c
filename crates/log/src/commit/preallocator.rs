//! Preallocation: creates segments before they are needed, and prewrites blocks, because
//! overwriting a written block costs half as much as writing a fresh one.
//!
//! Commits and prewriting take disjoint ranges from one frontier. A commit enters its range here
//! before it writes. A prewrite takes only blocks past every entered range. A commit whose range is
//! being prewritten waits for that one write.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use esker_disk::planted::{Bug, is_planted};
use esker_disk::{AlignedBuf, File};
use parking_lot::{Condvar, Mutex};

use crate::format::BLOCK;

/// Commits of this size and above gain nothing from prewritten blocks.
const LARGE: u64 = 64 << 10;
/// The least and the most bytes kept prewritten ahead of the log. Opening prewrites the least.
const AHEAD_MIN: u32 = 128 << 10;
const AHEAD_MAX: u32 = 16 << 20;
/// The most bytes of one prewrite.
pub(crate) const CHUNK: u32 = 1 << 20;

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
    /// The range that is being prewritten.
    busy: Option<Range<u32>>,
    /// Segments that the committer has yet to enter. The core places units in no others, so there
    /// are at most as many as units in memory, plus one.
    ready: VecDeque<(u64, ReadySegment)>,
    /// The segment and its `limit` at the last attempt to reserve ahead that reserved nothing.
    tried: (u64, u32),
    /// A moving average of the commit size, and recently entered bytes, halved at each prewrite.
    commit_size: u64,
    recent: u64,
    closed: bool,
}

impl Preallocator {
    /// The log continues in `segment` at `end`, with nothing reserved past that.
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
        while state.busy.as_ref().is_some_and(|busy| busy.start < range.end) {
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
        state.entered_to = BLOCK;
    }

    /// Whether prewriting, or reserving ahead, is due.
    pub(crate) fn is_low(&self) -> bool {
        let state = self.state.lock();
        let short = state.entered_to > state.limit / 2
            && state.ready.is_empty()
            && state.tried != (state.segment, state.limit);
        short || (self.prewrites && state.busy.is_none() && state.wants(self.most).is_some())
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
        state.busy = Some(range.clone());
        Some(PrewriteRange { preallocator: self, segment: state.segment, range })
    }

    /// Adds the next segment, which was created.
    pub(crate) fn made(&self, number: u64, ready: ReadySegment) {
        self.state.lock().ready.push_back((number, ready));
    }

    /// Records that a segment is reserved up to this offset.
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
        state.written_to = state.written_to.max(self.range.end);
        state.busy = None;
        self.preallocator.cleared.notify_all();
    }
}

impl State {
    fn wants(&self, most: u32) -> Option<Range<u32>> {
        let limit = self.limit.min(most);
        if self.commit_size >= LARGE {
            return None;
        }
        let recent = self.recent.min(u64::from(AHEAD_MAX)) as u32;
        let ahead = recent.next_multiple_of(BLOCK).max(AHEAD_MIN);
        let start = self.written_to.max(self.entered_to);
        let left = start - self.entered_to;
        let from = match is_planted(Bug::DurableBlockOverwritten) {
            true => start.saturating_sub(BLOCK).max(BLOCK),
            false => start,
        };
        (left < ahead / 2 && start < limit).then(|| from..limit.min(start + CHUNK.min(ahead)))
    }
}
