//! Esker's consensus log as a store of slots. Nothing that it writes is synced before it is
//! acknowledged.

use std::ops::ControlFlow;

use anyhow::{Result, ensure};
use esker::consensus::{ConsensusLog, Guard, IterateOptions, Mode, Slot};

use super::values::Values;
use crate::job::Job;
use crate::peers::consensus::BALLOT;

/// Batches in which slots are written before the timed part.
pub const BATCHES_AHEAD: u64 = 1000;

/// The log of a job.
#[derive(Debug)]
pub struct Store(ConsensusLog);

impl Store {
    /// Opens it, or creates it.
    pub fn open(job: &Job) -> Result<Self> {
        Self::with(job, false)
    }

    /// Opens it so that everything is durable that was acknowledged as committed.
    pub fn open_synced(job: &Job) -> Result<Self> {
        Self::with(job, true)
    }

    fn with(job: &Job, synced: bool) -> Result<Self> {
        let log = ConsensusLog::builder(job.log()).mode(Mode::Volatile).sync_on_commit(synced);
        Ok(Self(log.open()?))
    }

    /// Writes a committed value.
    pub fn put(&self, slot: u64, value: &[u8]) -> Result<()> {
        self.accept(slot, value)?;
        Ok(self.0.commit(Slot(slot), BALLOT)?.blocking_wait()?)
    }

    /// Writes a value that is not committed.
    pub fn accept(&self, slot: u64, value: &[u8]) -> Result<()> {
        Ok(self.0.accept(Slot(slot), BALLOT, value)?.blocking_wait()?)
    }

    /// Commits the value of a slot.
    pub fn commit(&self, slot: u64) -> Result<()> {
        Ok(self.0.commit(Slot(slot), BALLOT)?.blocking_wait()?)
    }

    /// Writes committed values in so many slots in order, in batches, and calls `each` after each
    /// batch.
    pub fn put_batches(
        &self,
        job: &Job,
        first: u64,
        count: u64,
        size: u64,
        mut each: impl FnMut(),
    ) -> Result<()> {
        let mut payloads: Vec<_> = (0..size).map(|_| job.payload(0)).collect();
        let end = first + count;
        for begin in (first..end).step_by(size as usize) {
            let slots = begin..end.min(begin + size);
            let values: Vec<_> = slots
                .clone()
                .zip(&mut payloads)
                .map(|(slot, payload)| (Slot(slot), payload.record(slot)))
                .collect();
            self.0.accept_batch(BALLOT, &values)?.blocking_wait()?;
            let marks: Vec<_> = slots.map(|slot| (Slot(slot), BALLOT)).collect();
            let done = self.0.commit_batch(&marks)?;
            done.results.into_iter().collect::<Result<(), _>>()?;
            done.ticket.blocking_wait()?;
            each();
        }
        Ok(())
    }

    /// Creates a guard for reads of what was written before it.
    pub fn pin(&self) -> Guard {
        self.0.pin()
    }

    /// Reads a committed slot, and compares it.
    pub fn get(&self, slot: u64, guard: &Guard, values: &mut Values) -> Result<()> {
        values.see(slot, self.0.read_committed(Slot(slot), guard)?.value())
    }

    /// Visits every committed slot in order.
    pub fn compare_committed(&self, job: &Job, full: u64, count: u64) -> Result<()> {
        let mut values = Values::new(job, full);
        let mut outcome = Ok(());
        self.0.iterate(Slot(0).., IterateOptions::default(), |entry| {
            let Slot(slot) = entry.slot();
            outcome = if slot == values.seen {
                values.see(slot, entry.value())
            } else {
                Err(anyhow::anyhow!("slot {slot} was read back in the place of {}", values.seen))
            };
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome?;
        ensure!(values.seen == count, "{} of {count} slots were read back", values.seen);
        Ok(())
    }

    /// The slots that are accepted and not committed, with their values, in order: every other one.
    pub fn compare_accepted(&self, job: &Job, full: u64, count: u64) -> Result<()> {
        let mut values = Values::new(job, full);
        let guard = self.0.pin();
        for entry in self.0.maintenance().scan_uncommitted(&guard)? {
            let wanted = 2 * values.seen + 1;
            let Slot(slot) = entry.slot();
            ensure!(slot == wanted, "slot {slot} was found in the place of {wanted}");
            values.see(slot, entry.value())?;
        }
        ensure!(values.seen == count, "{} of {count} slots were found", values.seen);
        Ok(())
    }

    /// Ends it in good order.
    pub fn close(self) -> Result<()> {
        Ok(self.0.close()?)
    }
}
