//! When a commit starts, and what becomes of it.
//!
//! | event | `Always` | `Batch(n)` | `Periodic(t)` | `OsBuffered` |
//! |---|---|---|---|---|
//! | a ticket is polled or waited for | sync | sync | sync | sync |
//! | a ticket is dropped unresolved | sync | - | - | write |
//! | the open unit has n records | - | sync | - | - |
//! | the timer, at the latest | sync, 10 ms | - | sync, t | write, 10 ms |
//! | no room in memory (`Batch`: 2n - 1 at risk) | sync | sync | sync | write |
//! | a unit is full | sync | sync | sync | write |
//! | two earlier segments are unsynced | - | - | - | sync |
//! | close | sync | sync | sync | sync |
//!
//! *Sync*: the unit is written and made durable, with all units before it; *write*: it is handed to
//! the system. A request starts a commit at once, unless as many are in flight as may be, a second
//! one beside it would gain nothing, or the commit delay waits for callers. Then it joins the next
//! one. Requests are numbers of units ([`Core::ask_sync`], [`Core::ask_write`]), so that a later
//! one covers the earlier ones.

use std::sync::Arc;
use std::time::Duration;

use super::{Core, InFlightCommit, IoState, Job, Open};
use crate::base::log_end::Mark;
use crate::base::options::Policy;
use crate::format::IndexEntry;
use crate::staging::fill_tracker::FillTracker;
use crate::staging::staged::Staged;

/// Commits up to this size may be in flight concurrently.
const SMALL: u32 = 64 << 10;

impl Core {
    /// The unit that holds the last accepted record.
    pub(crate) fn last_unit(&self) -> u64 {
        self.next_unit - 1
    }

    /// Requests that units up to this one become durable.
    pub(crate) fn ask_sync(&mut self, unit: u64) {
        let unit = unit.min(self.last_unit());
        self.asked_sync = self.asked_sync.max(unit);
        self.asked_write = self.asked_write.max(unit);
        self.check_invariants();
    }

    /// Requests that units up to this one be written to the operating system.
    pub(crate) fn ask_write(&mut self, unit: u64) {
        self.asked_write = self.asked_write.max(unit.min(self.last_unit()));
    }

    pub(super) fn ask_all(&mut self) {
        match self.policy {
            Policy::OsBuffered => self.ask_write(self.last_unit()),
            _ => self.ask_sync(self.last_unit()),
        }
    }

    /// Requests what the policy guarantees to a caller that does not wait.
    pub(crate) fn ask_unawaited(&mut self, unit: u64) {
        match self.policy {
            Policy::Always => self.ask_sync(unit),
            Policy::OsBuffered => self.ask_write(unit),
            Policy::Batch(_) | Policy::Periodic(_) => {}
        }
    }

    /// Whether there is a job, and room for it in flight.
    pub(crate) fn has_job(&self) -> bool {
        if self.has_failed() {
            return false;
        }
        self.in_flight.len() < self.depth
            && (!self.sealed.is_empty() || self.open_is_due() || self.sync_is_due())
    }

    /// Whether the next job helps to make this unit durable.
    pub(crate) fn helps(&self, unit: u64) -> bool {
        let next = self.in_flight.back().map_or(self.written.unit, |commit| commit.mark.unit) + 1;
        self.sync_is_due() || next <= unit
    }

    fn open_is_due(&self) -> bool {
        let Some(open) = self.open.as_ref().filter(|open| open.records > 0) else {
            return false;
        };
        // Large commits gain nothing from a second one in flight: the device is no faster, and
        // waiting lets more records join. A full unit gains nothing from waiting and does not wait.
        // A second commit also does not pay off where it would split callers that come back
        // together, or where it carries fewer records than the one in flight: the callers would go
        // on taking turns.
        let small =
            |commit: &InFlightCommit| commit.bytes <= SMALL && commit.records <= open.records;
        let beside = || {
            open.used <= SMALL
                && !self.commit_delay.is_regrouping()
                && self.in_flight.iter().all(small)
        };
        open.number <= self.asked_write && (self.in_flight.is_empty() || beside())
    }

    /// A commit completed after `took` and woke this many callers.
    pub(crate) fn commit_completed(&mut self, callers: usize, took: Duration) {
        self.commit_delay.completed(self.open_records(), callers, took);
    }

    /// Returns the longest commit delay for the calling thread; `None` for no delay. The thread
    /// then waits, until [`Core::end_delay`].
    pub(crate) fn begin_delay(&mut self) -> Option<Duration> {
        if !self.in_flight.is_empty() || !self.sealed.is_empty() || self.sync_is_due() {
            return None;
        }
        self.commit_delay.begin(self.open_records())
    }

    /// Whether a thread is in the commit delay.
    pub(crate) fn is_delaying(&self) -> bool {
        self.commit_delay.is_waiting()
    }

    /// Whether a thread is in the commit delay and may stop: enough callers are back, or the unit
    /// is full.
    pub(crate) fn delay_is_met(&self) -> bool {
        let full = self.commit_delay.is_waiting() && !self.sealed.is_empty();
        full || self.commit_delay.is_met(self.open_records())
    }

    pub(crate) fn end_delay(&mut self) {
        self.commit_delay.end(self.open_records());
    }

    fn open_records(&self) -> u32 {
        self.open.as_ref().map_or(0, |open| open.records)
    }

    fn sync_is_due(&self) -> bool {
        let asked = self.asked_sync.min(self.written.unit);
        self.durable.unit < asked
    }

    /// Hands out the next job. It is in flight until [`Core::complete`] or [`Core::fail`].
    pub(crate) fn next_job(&mut self) -> Option<Job> {
        let job = self.take_job();
        self.check_invariants();
        job
    }

    fn take_job(&mut self) -> Option<Job> {
        if !self.has_job() {
            return None;
        }
        // Sync before writing more: a caller waits, or too much is at risk.
        if self.sync_is_due() {
            self.start_io(self.written, 0, 0, true);
            return Some(Job::Sync { through: self.written });
        }
        if self.sealed.is_empty() {
            self.seal();
        }
        let unit = self.sealed.pop_front()?;
        let sync = self.policy != Policy::OsBuffered || unit.number <= self.asked_sync;
        self.start_io(unit.mark(), unit.used, unit.records, sync);
        Some(Job::Write { unit, sync })
    }

    fn start_io(&mut self, mark: Mark, bytes: u32, records: u32, sync: bool) {
        self.in_flight.push_back(InFlightCommit { mark, bytes, records, sync, state: IoState::Up });
    }

    /// A job completed. Returns whether the written mark advanced: it does not while an earlier job
    /// is in flight.
    pub(crate) fn complete(&mut self, commit: u64) -> bool {
        self.finish_io(commit, IoState::Landed);
        let in_flight = self.in_flight.len();
        while let Some(commit) = self.in_flight.front().filter(|f| f.state == IoState::Landed) {
            self.written = commit.mark;
            self.written_records += u64::from(commit.records);
            if commit.sync {
                self.durable = self.written;
                self.durable_records = self.written_records;
            }
            self.in_flight.pop_front();
        }
        self.forget_released();
        self.check_invariants();
        self.in_flight.len() < in_flight
    }

    /// A job failed. Neither it nor any later job will count as written.
    pub(crate) fn fail(&mut self, commit: u64) {
        self.finish_io(commit, IoState::Failed);
    }

    fn finish_io(&mut self, unit: u64, state: IoState) {
        if let Some(commit) = self.in_flight.iter_mut().find(|commit| commit.mark.unit == unit) {
            commit.state = state;
        }
    }

    /// Whether a job is in flight.
    pub(crate) fn has_in_flight(&self) -> bool {
        self.in_flight.iter().any(|commit| commit.state == IoState::Up)
    }

    /// Whether more records may become durable although the log accepts no more: a job is in
    /// flight, and no earlier one failed.
    pub(crate) fn is_open(&self) -> bool {
        let mut whole = self.in_flight.iter().take_while(|commit| commit.state != IoState::Failed);
        whole.any(|commit| commit.state == IoState::Up)
    }

    fn forget_released(&mut self) {
        let released = self.released().unit;
        while self.staged.front().is_some_and(|staged| staged.unit <= released) {
            self.staged.pop_front();
        }
    }

    /// The records that are accepted but not durable, in order.
    pub(crate) fn staged(&self) -> impl Iterator<Item = Staged> {
        let open = self.open.as_ref().filter(|open| open.records > 0).map(Open::staged);
        self.staged.iter().cloned().chain(open)
    }

    /// Takes back an emptied list of index entries, for reuse.
    pub(crate) fn return_index(&mut self, mut index: Vec<IndexEntry>) {
        if index.capacity() > 0 && self.spare_index.len() < self.fill_tracker.len() {
            index.clear();
            self.spare_index.push(index);
        }
    }

    /// The fill tracker of a unit that is not yet written.
    pub(crate) fn fill_tracker(&self, unit: u64) -> &FillTracker {
        &self.fill_tracker[(unit % self.fill_tracker.len() as u64) as usize]
    }

    pub(crate) fn fill_trackers(&self) -> Arc<[FillTracker]> {
        Arc::clone(&self.fill_tracker)
    }
}
