//! Runs writes: attempts under the lock of the log, until one is decided.
//!
//! A [`Write`] makes one attempt, and [`Attempts`] decides the step after it. Neither waits.
//! [`Writer::run`] and [`Writer::run_async`] differ only in how they wait: for cleaning, and for
//! room in the log.

use esker_log::component::{AppendRefusal, LockedAppender};

use crate::base::error::{Error, Result, refuse_if_forked};
use crate::base::ticket::Ticket;
use crate::state::writer::Writer;

/// The most attempts of one write. Only the conditions of a batch need more than two: other writers
/// may change their keys each time.
const ATTEMPTS_MAX: u32 = 100;

/// A write of a store.
pub(super) trait Write {
    /// Whether the write waits while cleaning is behind. Deletes never do: they free space.
    fn is_throttled(&self) -> bool;

    /// Prepares an attempt, without a lock. May read from the disk.
    fn prepare(&mut self, store: &Writer) -> Result<()>;

    /// Takes the order locks of the keys, decides, and appends at most once.
    fn attempt(
        &self,
        store: &Writer,
        log: &LockedAppender<'_>,
    ) -> std::result::Result<Result<AttemptOutcome>, AppendRefusal>;

    /// Does the work that a write leaves behind, without any lock.
    fn finish(&self, store: &Writer);
}

/// The outcome of an attempt that was not refused by the log.
#[derive(Debug)]
pub(super) enum AttemptOutcome {
    /// The records of the write have their places; without a ticket there was nothing to write.
    Written(Option<esker_log::Ticket>),
    /// The preparation does not hold any more: another writer changed a key.
    Stale,
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
    fn next(&mut self, outcome: Result<AttemptOutcome>) -> Result<Step> {
        self.made += 1;
        debug_assert!(self.made <= ATTEMPTS_MAX, "attempts are bounded");
        match outcome {
            Ok(AttemptOutcome::Written(ticket)) => Ok(Step::Finish(ticket)),
            Ok(AttemptOutcome::Stale) if self.made < ATTEMPTS_MAX => Ok(Step::Repeat),
            Ok(AttemptOutcome::Stale) => Err(Error::Contended),
            Err(Error::IndexFull) if !self.freed_entries && self.made < ATTEMPTS_MAX => {
                self.freed_entries = true;
                Ok(Step::FreeEntries)
            }
            Err(error) => Err(error),
        }
    }
}

impl Writer {
    /// Runs a write. Blocks while cleaning is behind and while the log has no room.
    ///
    /// Inlined: with a call, a put takes a tenth longer.
    #[inline(always)]
    pub(super) fn run(&self, mut write: impl Write) -> Result<Ticket> {
        self.admit()?;
        if write.is_throttled() {
            self.cleaning().pace_writer();
        }
        let mut attempts = Attempts::default();
        loop {
            write.prepare(self)?;
            let outcome = self.log.component().append_locked(|log| write.attempt(self, log))?;
            if let Some(ticket) = self.follow_up(&write, attempts.next(outcome)?)? {
                return Ok(ticket);
            }
        }
    }

    /// As [`Writer::run`], but waits as a pending future.
    pub(super) async fn run_async(&self, mut write: impl Write) -> Result<Ticket> {
        self.admit()?;
        if write.is_throttled() {
            self.cleaning().throttle().wait().await;
        }
        let mut attempts = Attempts::default();
        loop {
            write.prepare(self)?;
            let outcome =
                self.log.component().append_locked_async(|log| write.attempt(self, log)).await?;
            if let Some(ticket) = self.follow_up(&write, attempts.next(outcome)?)? {
                return Ok(ticket);
            }
        }
    }

    /// Refuses a write of a child process, or of a store that has failed. The log refuses those of
    /// a store that is closed.
    #[inline]
    fn admit(&self) -> Result<()> {
        refuse_if_forked()?;
        Ok(self.view().health().check_invariants()?)
    }

    /// Takes the step after an attempt. Returns the ticket of a write that is done; for one that
    /// changed nothing, a ticket for everything before it.
    #[inline]
    fn follow_up(&self, write: &impl Write, step: Step) -> Result<Option<Ticket>> {
        match step {
            Step::Finish(ticket) => {
                // The record has its place. But no answer of an index that is wrong is right.
                self.view().health().check_invariants()?;
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
        let step = attempts.next(Err(Error::IndexFull));
        assert!(matches!(step, Ok(Step::FreeEntries)));
        assert!(matches!(attempts.next(Err(Error::IndexFull)), Err(Error::IndexFull)));
    }

    #[test]
    fn a_write_that_other_writers_outrun_ends() {
        let mut attempts = Attempts::default();
        for _ in 1..ATTEMPTS_MAX {
            assert!(matches!(attempts.next(Ok(AttemptOutcome::Stale)), Ok(Step::Repeat)));
        }
        assert!(matches!(attempts.next(Ok(AttemptOutcome::Stale)), Err(Error::Contended)));
        assert_eq!(attempts.made, ATTEMPTS_MAX);
    }

    #[test]
    fn an_error_or_a_place_ends_a_write() {
        let mut attempts = Attempts::default();
        assert!(matches!(attempts.next(Err(Error::Closed)), Err(Error::Closed)));
        let step = attempts.next(Ok(AttemptOutcome::Written(None)));
        assert!(matches!(step, Ok(Step::Finish(None))));
    }
}
