//! Runs writes: attempts under the lock of the log, until one is decided.
//!
//! A [`Write`] makes one attempt, and [`Attempts`] decides the step after it. Neither waits.
//! [`StoreWriter::run`] and [`StoreWriter::run_async`] differ only in how they wait: for cleaning,
//! and for room in the log.

use std::convert::Infallible;

use esker_log::component::{AppendRefusal, LockedAppender};

use crate::base::operation_errors::WriteError;
use crate::base::store_error::{StoreError, refuse_if_forked};
use crate::base::ticket::Ticket;
use crate::state::store_writer::StoreWriter;

/// The most attempts of one write. Only the conditions of a batch need more than two: other writers
/// may change their keys each time.
const ATTEMPTS_MAX: u32 = 100;

/// A write of a store.
pub(super) trait Write {
    /// The reason why an attempt does not hold any more. Without conditions there is none.
    type Stale;
    /// The error of the write.
    type Error: From<Exhausted<Self::Stale>> + From<StoreError>;

    /// Whether the write waits while cleaning is behind. A delete does not wait: it frees space.
    fn is_throttled(&self) -> bool;

    /// Prepares an attempt, without a lock. May read from the disk.
    fn prepare(&mut self, store: &StoreWriter) -> Result<(), Self::Error>;

    /// Takes the write locks of the keys, decides, and appends at most once.
    fn attempt(
        &self,
        store: &StoreWriter,
        log: &LockedAppender<'_>,
    ) -> Result<Result<AttemptOutcome<Self::Stale>, Self::Error>, AppendRefusal>;

    /// Does the work that a write leaves behind, without any lock.
    fn finish(&self, store: &StoreWriter);
}

/// The outcome of an attempt that was not refused by the log.
#[derive(Debug)]
pub(super) enum AttemptOutcome<S> {
    /// The records of the write have their places; without a ticket there was nothing to write.
    Written(Option<esker_log::Ticket>),
    /// The preparation does not hold any more.
    Stale(S),
    /// The index has no room for the keys of the write.
    IndexFull,
}

/// The reason why an attempt to write a batch does not hold any more: another writer changed a key
/// of its conditions.
#[derive(Debug)]
pub(super) struct StaleConditions;

/// The reason why a write is not attempted again.
#[derive(Debug)]
pub(super) enum Exhausted<S> {
    /// The index has no room, also without the entries of deleted keys.
    IndexFull,
    /// Each attempt was stale.
    Stale(S),
}

impl From<Exhausted<Infallible>> for WriteError {
    fn from(exhausted: Exhausted<Infallible>) -> Self {
        match exhausted {
            Exhausted::IndexFull => Self::IndexFull,
            Exhausted::Stale(never) => match never {},
        }
    }
}

impl From<Exhausted<StaleConditions>> for WriteError {
    fn from(exhausted: Exhausted<StaleConditions>) -> Self {
        match exhausted {
            Exhausted::IndexFull => Self::IndexFull,
            Exhausted::Stale(StaleConditions) => Self::Contended,
        }
    }
}

/// The attempts of one write so far.
#[derive(Debug, Default)]
struct Attempts {
    made: u32,
    /// Entries of deleted keys were freed for this write.
    freed_entries: bool,
}

/// The step after an attempt.
#[derive(Debug)]
enum Step {
    Finish(Option<esker_log::Ticket>),
    /// Frees the entries of deleted keys, and attempts again.
    FreeEntries,
    /// Prepares and attempts again.
    Repeat,
}

impl Attempts {
    /// Decides the step after an attempt.
    #[inline]
    fn next<S>(&mut self, outcome: AttemptOutcome<S>) -> Result<Step, Exhausted<S>> {
        self.made += 1;
        debug_assert!(self.made <= ATTEMPTS_MAX, "attempts are bounded");
        match outcome {
            AttemptOutcome::Written(ticket) => Ok(Step::Finish(ticket)),
            AttemptOutcome::Stale(_) if self.made < ATTEMPTS_MAX => Ok(Step::Repeat),
            AttemptOutcome::Stale(stale) => Err(Exhausted::Stale(stale)),
            AttemptOutcome::IndexFull if !self.freed_entries && self.made < ATTEMPTS_MAX => {
                self.freed_entries = true;
                Ok(Step::FreeEntries)
            }
            AttemptOutcome::IndexFull => Err(Exhausted::IndexFull),
        }
    }
}

impl StoreWriter {
    /// Runs a write. Blocks while cleaning is behind and while the log has no room.
    ///
    /// Inlined: with a call, a put takes a tenth longer.
    #[inline(always)]
    pub(super) fn run<W: Write>(&self, mut write: W) -> Result<Ticket, W::Error> {
        self.admit()?;
        if write.is_throttled() {
            self.cleaning().pace_writer();
        }
        let mut attempts = Attempts::default();
        loop {
            write.prepare(self)?;
            let outcome = self.log.component().append_locked(|log| write.attempt(self, log));
            let step = attempts.next(outcome.map_err(StoreError::from)??)?;
            if let Some(ticket) = self.follow_up(&write, step)? {
                return Ok(ticket);
            }
        }
    }

    /// As [`StoreWriter::run`], but waits as a pending future.
    pub(super) async fn run_async<W: Write>(&self, mut write: W) -> Result<Ticket, W::Error> {
        self.admit()?;
        if write.is_throttled() {
            self.cleaning().throttle().wait().await;
        }
        let mut attempts = Attempts::default();
        loop {
            write.prepare(self)?;
            let outcome =
                self.log.component().append_locked_async(|log| write.attempt(self, log)).await;
            let step = attempts.next(outcome.map_err(StoreError::from)??)?;
            if let Some(ticket) = self.follow_up(&write, step)? {
                return Ok(ticket);
            }
        }
    }

    /// Refuses a write of a child process, or of a store that has failed. The log refuses those of
    /// a store that is closed.
    #[inline]
    fn admit(&self) -> Result<(), StoreError> {
        refuse_if_forked()?;
        Ok(self.state().health().check_invariants()?)
    }

    /// Takes the step after an attempt. Returns the ticket of a write that is done; for one that
    /// changed nothing, a ticket for everything before it.
    #[inline]
    fn follow_up(&self, write: &impl Write, step: Step) -> Result<Option<Ticket>, StoreError> {
        match step {
            Step::Finish(ticket) => {
                // The record has its place. But no answer of an index that is wrong is right.
                self.state().health().check_invariants()?;
                write.finish(self);
                match ticket {
                    Some(ticket) => Ok(Some(Ticket(ticket))),
                    None => Ok(Some(Ticket(self.log.barrier()?))),
                }
            }
            Step::FreeEntries => {
                self.free_entries();
                Ok(None)
            }
            Step::Repeat => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_frees_entries_once() {
        let mut attempts = Attempts::default();
        let step = attempts.next(AttemptOutcome::<Infallible>::IndexFull);
        assert!(matches!(step, Ok(Step::FreeEntries)));
        let step = attempts.next(AttemptOutcome::<Infallible>::IndexFull);
        assert!(matches!(step, Err(Exhausted::IndexFull)));
    }

    #[test]
    fn a_write_that_other_writers_outrun_ends() {
        let mut attempts = Attempts::default();
        for _ in 1..ATTEMPTS_MAX {
            let step = attempts.next(AttemptOutcome::Stale(StaleConditions));
            assert!(matches!(step, Ok(Step::Repeat)));
        }
        let step = attempts.next(AttemptOutcome::Stale(StaleConditions));
        let error = WriteError::from(step.unwrap_err());
        assert!(matches!(error, WriteError::Contended));
        assert_eq!(attempts.made, ATTEMPTS_MAX);
    }

    #[test]
    fn a_place_ends_a_write() {
        let mut attempts = Attempts::default();
        let step = attempts.next(AttemptOutcome::<Infallible>::Written(None));
        assert!(matches!(step, Ok(Step::Finish(None))));
    }
}
