//! Committing: what was asked for, what is due, and what became of it.

use std::sync::Arc;
use std::time::Duration;

use super::{Core, Flight, Flying, Job, Open};
use crate::base::log_end::Mark;
use crate::base::options::Policy;
use crate::format::IndexEntry;
use crate::staging::fill_tracker::Progress;
use crate::staging::staged::Staged;

/// Commits up to this size are in flight side by side.
const SMALL: u32 = 64 << 10;

impl Core {
    /// The unit that holds the last record accepted.
    pub(crate) fn last_unit(&self) -> u64 {
        self.next_unit - 1
    }

    /// Asks that units up to this one become durable.
    pub(crate) fn ask_sync(&mut self, unit: u64) {
        let unit = unit.min(self.last_unit());
        self.asked_sync = self.asked_sync.max(unit);
        self.asked_write = self.asked_write.max(unit);
    }

    /// Asks that units up to this one be handed to the system.
    pub(crate) fn ask_write(&mut self, unit: u64) {
        self.asked_write = self.asked_write.max(unit.min(self.last_unit()));
    }

    pub(super) fn ask_all(&mut self) {
        match self.policy {
            Policy::OsBuffered => self.ask_write(self.last_unit()),
            _ => self.ask_sync(self.last_unit()),
        }
    }

    /// Asks for what a caller that does not wait is owed under the policy.
    pub(crate) fn ask_unawaited(&mut self, unit: u64) {
        match self.policy {
            Policy::Always => self.ask_sync(unit),
            Policy::OsBuffered => self.ask_write(unit),
            Policy::Batch(_) | Policy::Periodic(_) => {}
        }
    }

    /// Whether there is something to do, and room for it in flight.
    pub(crate) fn has_job(&self) -> bool {
        if self.has_failed() {
            return false;
        }
        self.flights.len() < self.depth
            && (!self.sealed.is_empty() || self.open_is_due() || self.sync_is_due())
    }

    /// Whether the next job brings this unit nearer to being durable.
    pub(crate) fn helps(&self, unit: u64) -> bool {
        let next = self.flights.back().map_or(self.written.unit, |flight| flight.mark.unit) + 1;
        self.sync_is_due() || next <= unit
    }

    fn open_is_due(&self) -> bool {
        let Some(open) = self.open.as_ref().filter(|open| open.records > 0) else {
            return false;
        };
        // Where commits are large the device gains nothing by a second one, and the commit gains by
        // those that come while it waits. A unit that is full gains nothing and does not wait.
        // Nor does it gain where callers would be parted that come back together, or by a few records
        // beside many: they would go on taking turns.
        let small = |flight: &Flight| flight.bytes <= SMALL && flight.records <= open.records;
        let beside =
            || open.used <= SMALL && !self.gather.is_together() && self.flights.iter().all(small);
        open.number <= self.asked_write && (self.flights.is_empty() || beside())
    }

    /// A commit landed that took this long and woke so many callers.
    pub(crate) fn landed_for(&mut self, callers: usize, took: Duration) {
        self.gather.landed(self.open_records(), callers, took);
    }

    /// How long whoever commits next waits for callers to come back, at most. It then does, until
    /// [`Core::end_gathering`].
    pub(crate) fn begin_gathering(&mut self) -> Option<Duration> {
        if !self.flights.is_empty() || !self.sealed.is_empty() || self.sync_is_due() {
            return None;
        }
        self.gather.begin(self.open_records())
    }

    /// Whether a thread waits for callers to come back.
    pub(crate) fn is_gathering(&self) -> bool {
        self.gather.is_waiting()
    }

    /// Whether a thread waits, and need not any more: as many are back, or the unit is full.
    pub(crate) fn has_gathered(&self) -> bool {
        let full = self.gather.is_waiting() && !self.sealed.is_empty();
        full || self.gather.is_met(self.open_records())
    }

    pub(crate) fn end_gathering(&mut self) {
        self.gather.end(self.open_records());
    }

    fn open_records(&self) -> u32 {
        self.open.as_ref().map_or(0, |open| open.records)
    }

    fn sync_is_due(&self) -> bool {
        let asked = self.asked_sync.min(self.written.unit);
        self.durable.unit < asked
    }

    /// The next thing for the one committer to do. It is in flight from here on, until
    /// [`Core::land`] or [`Core::fail`].
    pub(crate) fn next_job(&mut self) -> Option<Job> {
        if !self.has_job() {
            return None;
        }
        // Before more is written: somebody waits, or too much is at risk.
        if self.sync_is_due() {
            self.take_off(self.written, 0, 0, true);
            return Some(Job::Sync { through: self.written });
        }
        if self.sealed.is_empty() {
            self.seal();
        }
        let unit = self.sealed.pop_front()?;
        let sync = self.policy != Policy::OsBuffered || unit.number <= self.asked_sync;
        self.take_off(unit.mark(), unit.used, unit.records, sync);
        Some(Job::Write { unit, sync })
    }

    fn take_off(&mut self, mark: Mark, bytes: u32, records: u32, sync: bool) {
        self.flights.push_back(Flight { mark, bytes, records, sync, state: Flying::Up });
    }

    /// A job is done. Whether that moved the written mark: not while one before it is in flight.
    pub(crate) fn land(&mut self, flight: u64) -> bool {
        self.end_flight(flight, Flying::Landed);
        let flights = self.flights.len();
        while let Some(flight) = self.flights.front().filter(|f| f.state == Flying::Landed) {
            self.written = flight.mark;
            self.written_records += u64::from(flight.records);
            if flight.sync {
                self.durable = self.written;
                self.durable_records = self.written_records;
            }
            self.flights.pop_front();
        }
        self.forget_settled();
        self.flights.len() < flights
    }

    /// A job failed. Nothing from it on will ever count as written.
    pub(crate) fn fail(&mut self, flight: u64) {
        self.end_flight(flight, Flying::Failed);
    }

    fn end_flight(&mut self, unit: u64, state: Flying) {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.mark.unit == unit) {
            flight.state = state;
        }
    }

    /// Whether a job is in flight.
    pub(crate) fn is_flying(&self) -> bool {
        self.flights.iter().any(|flight| flight.state == Flying::Up)
    }

    /// Whether more may become durable although the log takes no more: a job is in flight, and nothing
    /// before it failed.
    pub(crate) fn is_open(&self) -> bool {
        let mut whole = self.flights.iter().take_while(|flight| flight.state != Flying::Failed);
        whole.any(|flight| flight.state == Flying::Up)
    }

    fn forget_settled(&mut self) {
        let settled = self.settled().unit;
        while self.staged.front().is_some_and(|staged| staged.unit <= settled) {
            self.staged.pop_front();
        }
    }

    /// The records that are accepted and not durable, in order.
    pub(crate) fn staged(&self) -> impl Iterator<Item = Staged> {
        let open = self.open.as_ref().filter(|open| open.records > 0).map(Open::staged);
        self.staged.iter().cloned().chain(open)
    }

    /// Takes back an emptied list of index entries, to be filled again.
    pub(crate) fn return_index(&mut self, mut index: Vec<IndexEntry>) {
        if index.capacity() > 0 && self.spare_index.len() < self.progress.len() {
            index.clear();
            self.spare_index.push(index);
        }
    }

    /// The count of a unit that is not written yet.
    pub(crate) fn progress(&self, unit: u64) -> &Progress {
        &self.progress[(unit % self.progress.len() as u64) as usize]
    }

    pub(crate) fn all_progress(&self) -> Arc<[Progress]> {
        Arc::clone(&self.progress)
    }
}
