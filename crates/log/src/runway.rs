//! The blocks ahead of the log: segments made before they are needed, and blocks written before
//! records come, because overwriting a written block costs half of what a fresh one does.
//!
//! Commits and prewriting take disjoint ranges from one frontier: a commit enters its range here
//! before it writes, and a prewrite takes only what lies behind every range that was entered. A
//! commit that comes to a range being prewritten waits for that one write.

use std::ops::Range;
use std::sync::Arc;

use esker_disk::File;
use parking_lot::{Condvar, Mutex};

use crate::format::BLOCK;

/// Commits of this size and above do not gain by prewritten blocks.
const LARGE: u64 = 64 << 10;
/// The least and the most that is kept prewritten ahead.
const AHEAD_MIN: u32 = 1 << 20;
const AHEAD_MAX: u32 = 16 << 20;
/// One prewrite.
pub(crate) const CHUNK: u32 = 1 << 20;

/// A segment file that is there, durably named, and has no header yet.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) writer: Arc<dyn File>,
    pub(crate) reader: Arc<dyn File>,
    /// Blocks below this offset were written in some life of the file.
    pub(crate) written_to: u32,
}

#[derive(Debug)]
pub(crate) struct Runway {
    state: Mutex<State>,
    cleared: Condvar,
    prewrites: bool,
}

#[derive(Debug, Default)]
struct State {
    segment: u64,
    /// Blocks below this were written before.
    written_to: u32,
    /// Commits have entered all below this.
    entered_to: u32,
    /// The range that is being prewritten.
    busy: Option<Range<u32>>,
    ready: Option<(u64, Ready)>,
    making: Option<u64>,
    /// The committer has asked for this segment, or making it ahead failed: it is the committer's.
    taken: u64,
    /// A moving average of the size of commits, and bytes entered since the last look.
    commit_size: u64,
    recent: u64,
    closed: bool,
}

impl Runway {
    pub(crate) fn new(segment: u64, end: u32, written_to: u32, prewrites: bool) -> Self {
        let state =
            State { segment, written_to, entered_to: end, commit_size: 4096, ..State::default() };
        Self { state: Mutex::new(state), cleared: Condvar::new(), prewrites }
    }

    /// A commit enters its range: no prewrite will touch it from here on.
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

    /// Commits go to this segment now.
    pub(crate) fn enter(&self, segment: u64, written_to: u32) {
        let mut state = self.state.lock();
        while state.busy.is_some() {
            self.cleared.wait(&mut state);
        }
        state.segment = segment;
        state.written_to = written_to;
        // The header stands in the first block.
        state.entered_to = BLOCK;
    }

    /// Whether prewriting is due, or the making of the next segment.
    pub(crate) fn is_low(&self, limit: u32) -> bool {
        let state = self.state.lock();
        let next = state.segment + 1;
        let alone = state.ready.is_none() && state.making.is_none() && state.taken < next;
        (alone && state.entered_to > limit / 2)
            || (self.prewrites && state.busy.is_none() && state.wants(limit).is_some())
    }

    /// Takes the next range to prewrite. Nobody else enters it until the claim is dropped.
    pub(crate) fn claim(&self, limit: u32) -> Option<Claim<'_>> {
        let mut state = self.state.lock();
        if !self.prewrites || state.closed || state.busy.is_some() {
            return None;
        }
        let range = state.wants(limit)?;
        state.recent /= 2;
        state.busy = Some(range.clone());
        Some(Claim { runway: self, segment: state.segment, range })
    }

    /// Takes the making of a segment, if nobody has made it or is making it.
    pub(crate) fn claim_segment(&self, number: u64) -> Option<Making<'_>> {
        let mut state = self.state.lock();
        let have = state.ready.as_ref().is_some_and(|(ready, _)| *ready >= number);
        let late = state.segment.max(state.taken) >= number;
        if state.closed || have || state.making.is_some() || late {
            return None;
        }
        state.making = Some(number);
        Some(Making { runway: self, number, made: None })
    }

    /// The segment with this number, if it was made ahead.
    pub(crate) fn take(&self, number: u64) -> Option<Ready> {
        let mut state = self.state.lock();
        while state.making == Some(number) {
            self.cleared.wait(&mut state);
        }
        state.taken = number;
        state.ready.take_if(|(ready, _)| *ready == number).map(|(_, ready)| ready)
    }

    /// Stops all work ahead; returns once none is under way. The segment made ahead, if any, is
    /// given back to be removed.
    pub(crate) fn close(&self) -> Option<(u64, Ready)> {
        let mut state = self.state.lock();
        state.closed = true;
        while state.busy.is_some() || state.making.is_some() {
            self.cleared.wait(&mut state);
        }
        state.ready.take()
    }
}

/// A range that is being prewritten. When the prewrite failed the range counts as written all the
/// same, so that it is not tried again.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    runway: &'a Runway,
    pub(crate) segment: u64,
    pub(crate) range: Range<u32>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.runway.state.lock();
        state.written_to = state.written_to.max(self.range.end);
        state.busy = None;
        self.runway.cleared.notify_all();
    }
}

/// A segment that is being made. One that could not be made ahead is left to the committer, whose
/// failure it then is.
#[derive(Debug)]
pub(crate) struct Making<'a> {
    runway: &'a Runway,
    number: u64,
    made: Option<Ready>,
}

impl Making<'_> {
    pub(crate) fn made(mut self, ready: Ready) {
        self.made = Some(ready);
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let mut state = self.runway.state.lock();
        state.making = None;
        match self.made.take() {
            Some(ready) => state.ready = Some((self.number, ready)),
            None => state.taken = state.taken.max(self.number),
        }
        self.runway.cleared.notify_all();
    }
}

impl State {
    fn wants(&self, limit: u32) -> Option<Range<u32>> {
        if self.commit_size >= LARGE {
            return None;
        }
        let ahead = (self.recent.min(u64::from(AHEAD_MAX)) as u32).max(AHEAD_MIN);
        let start = self.written_to.max(self.entered_to);
        let left = start - self.entered_to;
        (left < ahead / 2 && start < limit).then(|| start..limit.min(start + CHUNK))
    }
}
