//! Jobs: hands out what to write or sync next, and accounts for what completed or failed.
//!
//! Whether there is a job is decided in [`schedule`](super::schedule).

use std::sync::Arc;

use super::{Core, InFlightCommit, IoState, Job, OpenUnit, Units};
use crate::base::log_end::Mark;
use crate::base::options::Policy;
use crate::staging::fill_tracker::FillTracker;
use crate::staging::staged::StagedUnit;

impl Core {
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
            self.covered = self.written;
            self.in_flight.push_back(InFlightCommit {
                mark: self.written,
                bytes: 0,
                records: 0,
                appends: 0,
                sync: true,
                state: IoState::InFlight,
            });
            return Some(Job::Sync { through: self.written });
        }
        let grouped = self.next_write_is_grouped();
        let units = self.take_units()?;
        let sync = !grouped
            && (self.policy != Policy::OsBuffered || units.first.number <= self.requested_sync);
        if sync {
            self.covered = units.last().mark();
        }
        self.in_flight.push_back(InFlightCommit {
            mark: units.last().mark(),
            bytes: units.range().len() as u32,
            records: units.iter().map(|unit| unit.records).sum(),
            appends: units.iter().map(|unit| unit.appends).sum(),
            sync,
            state: IoState::InFlight,
        });
        Some(Job::Write { units, sync })
    }

    /// Takes the units of the next write: the sealed ones of one buffer, and the open one after
    /// them, if it is due.
    fn take_units(&mut self) -> Option<Units> {
        let joins = |open: &OpenUnit| match self.sealed.front() {
            Some(sealed) => Arc::ptr_eq(&sealed.buffer, &open.buffer),
            None => true,
        };
        if self.open_is_due() && self.open.as_ref().is_some_and(joins) {
            self.seal();
        }
        let first = self.sealed.pop_front()?;
        let (more, index) = self.spare_lists.pop().unwrap_or_default();
        let mut units = Units { first, more, index };
        while self.sealed.front().is_some_and(|unit| units.precede(unit)) {
            units.more.extend(self.sealed.pop_front());
        }
        let last = units.last().last_seq;
        let indexed = self.index.partition_point(|entry| entry.seq <= last);
        units.index.extend(self.index.drain(..indexed));
        Some(units)
    }

    /// A job completed. Returns whether the written mark advanced: it does not while an earlier job
    /// is in flight.
    pub(crate) fn complete(&mut self, commit: u64) -> bool {
        self.finish_io(commit, IoState::Completed);
        let in_flight = self.in_flight.len();
        while let Some(commit) = self.in_flight.front().filter(|f| f.state == IoState::Completed) {
            self.written = commit.mark;
            self.written_records += u64::from(commit.records);
            self.written_appends += u64::from(commit.appends);
            if commit.sync {
                self.durable = self.written;
                self.durable_records = self.written_records;
                self.durable_appends = self.written_appends;
            }
            self.in_flight.pop_front();
        }
        self.forget_released();
        self.check_invariants();
        self.in_flight.len() < in_flight
    }

    /// How far records will be durable when this job completes, which has done its I/O.
    pub(crate) fn durable_with(&self, commit: u64) -> Mark {
        let is_done =
            |job: &&InFlightCommit| job.state == IoState::Completed || job.mark.unit == commit;
        let done = self.in_flight.iter().take_while(is_done).filter(|job| job.sync);
        done.last().map_or(self.durable, |job| job.mark)
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
        self.in_flight.iter().any(|commit| commit.state == IoState::InFlight)
    }

    /// How many jobs are in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.iter().filter(|commit| commit.state == IoState::InFlight).count()
    }

    /// Whether more records may become durable although the log accepts no more: a job is in
    /// flight, and no earlier one failed.
    pub(crate) fn is_open(&self) -> bool {
        let mut whole = self.in_flight.iter().take_while(|commit| commit.state != IoState::Failed);
        whole.any(|commit| commit.state == IoState::InFlight)
    }

    fn forget_released(&mut self) {
        let released = self.released().unit;
        while self.staged.front().is_some_and(|staged| staged.unit <= released) {
            self.staged.pop_front();
        }
    }

    /// The records that are accepted but not durable, in order.
    pub(crate) fn staged(&self) -> impl Iterator<Item = StagedUnit> {
        let open = self.open.as_ref().filter(|open| open.records > 0).map(OpenUnit::staged);
        self.staged.iter().cloned().chain(open)
    }

    /// Takes back what a write carried, for the reuse of its lists.
    pub(crate) fn return_units(&mut self, units: Units) {
        let Units { mut more, mut index, .. } = units;
        if self.spare_lists.len() < self.depth {
            more.clear();
            index.clear();
            self.spare_lists.push((more, index));
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
