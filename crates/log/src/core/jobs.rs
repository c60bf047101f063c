//! Committing: what was asked for, what is due, and what became of it.

use std::sync::Arc;

use super::{Core, Job, Mark, Open, Staged};
use crate::error::Latch;
use crate::format::IndexEntry;
use crate::options::Policy;
use crate::progress::Progress;

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

    /// Whether there is something to do for a committer.
    pub(crate) fn has_job(&self) -> bool {
        if self.latch.as_ref().is_some_and(|latch| !matches!(latch, Latch::Closed)) {
            return false;
        }
        !self.sealed.is_empty() || self.open_is_due() || self.sync_is_due()
    }

    fn open_is_due(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.records > 0 && open.number <= self.asked_write)
    }

    fn sync_is_due(&self) -> bool {
        let asked = self.asked_sync.min(self.written.unit);
        self.durable.unit < asked
    }

    /// The next thing for the one committer to do. It reports the outcome by [`Core::complete`]
    /// before it asks again.
    pub(crate) fn next_job(&mut self) -> Option<Job> {
        if !self.has_job() {
            return None;
        }
        // Before more is written: somebody waits, or too much is at risk.
        if self.sync_is_due() {
            return Some(Job::Sync);
        }
        if self.sealed.is_empty() {
            self.seal();
        }
        let unit = self.sealed.pop_front()?;
        let sync = self.policy != Policy::OsBuffered || unit.number <= self.asked_sync;
        Some(Job::Write { unit, sync })
    }

    /// A unit was written, and made durable if `sync`.
    pub(crate) fn complete(&mut self, mark: Mark, records: u32, sync: bool) {
        self.written = mark;
        self.written_records += u64::from(records);
        if sync {
            self.synced();
        }
        self.forget_settled();
    }

    /// All that was written is durable.
    pub(crate) fn synced(&mut self) {
        self.durable = self.written;
        self.durable_records = self.written_records;
        self.forget_settled();
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
        if self.spare_index.len() < self.progress.len() {
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
