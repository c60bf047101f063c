//! Jobs: hands out what to write or sync next, and accounts for what completed or failed.
//!
//! Whether there is a job is decided in [`schedule`](super::schedule).

use std::sync::Arc;

use super::units::{InFlightCommit, IoState, OpenUnit};
use super::{BrokenInvariant, Core, Job, Units};
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
            let through = self.marks.written();
            self.marks.cover(through);
            self.units.hand_out(InFlightCommit {
                mark: through,
                bytes: 0,
                records: 0,
                appends: 0,
                sync: true,
                state: IoState::InFlight,
            });
            return Some(Job::Sync { through });
        }
        let grouped = self.next_write_is_grouped();
        let units = self.take_units()?;
        let sync = !grouped
            && (self.policy != Policy::OsBuffered
                || units.first.number <= self.requests.sync_through());
        if sync {
            self.marks.cover(units.last().mark());
        }
        self.units.hand_out(InFlightCommit {
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
        let joins = |open: &OpenUnit| match self.units.first_sealed() {
            Some(sealed) => Arc::ptr_eq(&sealed.buffer, &open.buffer),
            None => true,
        };
        if self.open_is_due() && self.units.open().is_some_and(joins) {
            self.seal();
        }
        self.units.take_write()
    }

    /// A job completed. Returns whether the written mark advanced: it does not while an earlier job
    /// is in flight.
    pub(crate) fn complete(&mut self, commit: u64) -> Result<bool, BrokenInvariant> {
        if !self.units.finish_io(commit, IoState::Completed) {
            return Err(self.broken("a job that completes was handed out"));
        }
        let mut advanced = false;
        while let Some(commit) = self.units.pop_completed() {
            self.marks.wrote(commit.mark, commit.records, commit.appends);
            if commit.sync {
                self.marks.synced();
            }
            advanced = true;
        }
        self.units.forget(self.released().unit);
        self.check_invariants();
        Ok(advanced)
    }

    /// How far records will be durable when this job completes, which has done its I/O.
    pub(crate) fn durable_with(&self, commit: u64) -> Mark {
        let is_done =
            |job: &&InFlightCommit| job.state == IoState::Completed || job.mark.unit == commit;
        let done = self.units.in_flight().iter().take_while(is_done).filter(|job| job.sync);
        done.last().map_or(self.marks.durable(), |job| job.mark)
    }

    /// A job failed. Neither it nor any later job will count as written.
    pub(crate) fn fail(&mut self, commit: u64) {
        self.units.finish_io(commit, IoState::Failed);
    }

    /// Whether a job is in flight.
    pub(crate) fn has_in_flight(&self) -> bool {
        self.units.in_flight().iter().any(|commit| commit.state == IoState::InFlight)
    }

    /// How many jobs are in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.units.in_flight().iter().filter(|commit| commit.state == IoState::InFlight).count()
    }

    /// Whether more records may become durable although the log accepts no more: a job is in
    /// flight, and no earlier one failed.
    pub(crate) fn is_open(&self) -> bool {
        let mut whole =
            self.units.in_flight().iter().take_while(|commit| commit.state != IoState::Failed);
        whole.any(|commit| commit.state == IoState::InFlight)
    }

    /// The records that are accepted but not durable, in order.
    pub(crate) fn staged(&self) -> impl Iterator<Item = StagedUnit> {
        self.units.staged()
    }

    /// Takes back what a write carried, for the reuse of its lists.
    pub(crate) fn return_units(&mut self, units: Units) {
        self.units.return_units(units);
    }

    /// The fill tracker of a unit that is not yet written.
    pub(crate) fn fill_tracker(&self, unit: u64) -> &FillTracker {
        self.units.fill_tracker(unit)
    }

    pub(crate) fn fill_trackers(&self) -> Arc<[FillTracker]> {
        self.units.fill_trackers()
    }
}
