//! Runs writes: attempts under the lock of the log, until one decides the write.
//!
//! A [`Write`] makes one attempt. [`Attempts`] decides the step after it. Neither waits.
//! [`StoreWriter::run`] and [`StoreWriter::run_async`] differ only in how they wait: for cleaning,
//! and for room in the log.

use esker_log::AppendError;
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
    /// Whether the write waits while cleaning is behind. A delete does not wait: it frees space.
    fn is_throttled(&self) -> bool;

    /// Prepares an attempt, without a lock. May read from the disk.
    fn prepare(&mut self, store: &StoreWriter) -> Result<(), WriteError>;

    /// Takes the write locks of the keys, decides, and appends at most once.
    ///
    /// # Errors
    /// [`AppendRefusal`] of the log, which runs the attempt again when it has room.
    fn attempt(
        &self,
        store: &StoreWriter,
        log: &LockedAppender<'_>,
    ) -> Result<AttemptOutcome, AppendRefusal>;

    /// Does the work that a write leaves behind, without any lock.
    fn finish(&self, store: &StoreWriter);
}

/// The outcome of an attempt that was not refused by the log.
#[derive(Debug)]
pub(super) enum AttemptOutcome {
    /// The records of the write have their places; without a ticket there was nothing to write.
    Written(Option<esker_log::Ticket>),
    /// The write is refused, and no other attempt changes that.
    Refused(WriteError),
    /// Another writer changed a key of the conditions after they were found to hold.
    Stale,
    /// The index has no room for the keys of the write.
    IndexFull,
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
    fn next(&mut self, outcome: AttemptOutcome) -> Result<Step, WriteError> {
        self.made += 1;
        debug_assert!(self.made <= ATTEMPTS_MAX, "attempts are bounded");
        match outcome {
            AttemptOutcome::Written(ticket) => Ok(Step::Finish(ticket)),
            AttemptOutcome::Refused(error) => Err(error),
            AttemptOutcome::Stale if self.made < ATTEMPTS_MAX => Ok(Step::Repeat),
            AttemptOutcome::Stale => Err(WriteError::Contended),
            AttemptOutcome::IndexFull if !self.freed_entries && self.made < ATTEMPTS_MAX => {
                self.freed_entries = true;
                Ok(Step::FreeEntries)
            }
            AttemptOutcome::IndexFull => Err(WriteError::IndexFull),
        }
    }
}

impl StoreWriter {
    /// Runs a write. Blocks while cleaning is behind and while the log has no room.
    ///
    /// Inlined: with a call, a put takes a tenth longer.
    #[inline(always)]
    pub(super) fn run(&self, mut write: impl Write) -> Result<Ticket, WriteError> {
        self.admit()?;
        if write.is_throttled() {
            self.cleaning().pace_writer();
        }
        let mut attempts = Attempts::default();
        loop {
            write.prepare(self)?;
            let outcome = self.log.component().append_locked(|log| write.attempt(self, log));
            if let Some(ticket) = self.follow_up(&write, &mut attempts, outcome)? {
                return Ok(ticket);
            }
        }
    }

    /// As [`StoreWriter::run`], but waits as a pending future.
    pub(super) async fn run_async(&self, mut write: impl Write) -> Result<Ticket, WriteError> {
        self.admit()?;
        if write.is_throttled() {
            self.cleaning().throttle().wait().await;
        }
        let mut attempts = Attempts::default();
        loop {
            write.prepare(self)?;
            let outcome =
                self.log.component().append_locked_async(|log| write.attempt(self, log)).await;
            if let Some(ticket) = self.follow_up(&write, &mut attempts, outcome)? {
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
    fn follow_up(
        &self,
        write: &impl Write,
        attempts: &mut Attempts,
        outcome: Result<AttemptOutcome, AppendError>,
    ) -> Result<Option<Ticket>, WriteError> {
        match attempts.next(outcome.map_err(StoreError::from)?)? {
            Step::Finish(ticket) => {
                // The record has its place. But no answer of an index that is wrong is right.
                self.state().health().check_invariants()?;
                write.finish(self);
                match ticket {
                    Some(ticket) => Ok(Some(Ticket(ticket))),
                    None => Ok(Some(Ticket(self.log.barrier().map_err(StoreError::from)?))),
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
        let step = attempts.next(AttemptOutcome::IndexFull);
        assert!(matches!(step, Ok(Step::FreeEntries)));
        let step = attempts.next(AttemptOutcome::IndexFull);
        assert!(matches!(step, Err(WriteError::IndexFull)));
    }

    #[test]
    fn a_write_that_other_writers_outrun_ends() {
        let mut attempts = Attempts::default();
        for _ in 1..ATTEMPTS_MAX {
            assert!(matches!(attempts.next(AttemptOutcome::Stale), Ok(Step::Repeat)));
        }
        let step = attempts.next(AttemptOutcome::Stale);
        assert!(matches!(step, Err(WriteError::Contended)));
        assert_eq!(attempts.made, ATTEMPTS_MAX);
    }

    #[test]
    fn a_place_or_a_refusal_ends_a_write() {
        let mut attempts = Attempts::default();
        let step = attempts.next(AttemptOutcome::Written(None));
        assert!(matches!(step, Ok(Step::Finish(None))));
        let mut attempts = Attempts::default();
        let step = attempts.next(AttemptOutcome::Refused(WriteError::AnotherStore));
        assert!(matches!(step, Err(WriteError::AnotherStore)));
    }
}
