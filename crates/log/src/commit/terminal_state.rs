//! The terminal state of a log: after a failed write or sync, a stopped engine or a broken
//! invariant it accepts nothing more. Every later call gets the reason.

use std::sync::Arc;

use crate::base::error::{Error, Terminal, with_causes};
use crate::base::log_error::LogError;
use crate::commit::core::BrokenInvariant;
use crate::commit::write_half::{State, WriteHalf};
use crate::store::segment_table::Segment;

impl WriteHalf {
    /// Records the failure of a job. The caller wakes all waiters after it releases the state lock.
    pub(super) fn failed(&self, state: &mut State, io: u64, last: Option<u64>, error: Error) {
        let through = last.unwrap_or(state.core.written().seq);
        state.core.fail(io);
        // In a debug build the guard of the thread that commits wakes them.
        panic_if_broken(self.enter_terminal_state(state, error, through));
    }

    /// Records a failure outside a commit, and wakes all waiters; under the lock of the reserve or
    /// of the set of segments, tasks after its release. The caller does not hold the state lock.
    pub(crate) fn fail(&self, error: Error) {
        let broken = {
            let mut state = self.lock();
            let through = state.core.durable().seq;
            self.enter_terminal_state(&mut state, error, through)
        };
        self.wake_all();
        panic_if_broken(broken);
    }

    /// Fails the log because its state contradicts itself. The caller does not hold the state lock.
    ///
    /// # Panics
    /// In debug builds, once the log is in its terminal state.
    #[cold]
    pub(crate) fn broken(&self, BrokenInvariant(invariant): BrokenInvariant) -> LogError {
        self.fail(Error::Internal { invariant });
        LogError::Internal { invariant }
    }

    /// The segment where the log ends.
    pub(crate) fn newest_segment(&self) -> Result<Arc<Segment>, LogError> {
        let newest = self.segments.table().newest();
        newest.ok_or_else(|| self.broken(BrokenInvariant("an open log has a segment")))
    }

    /// Puts the log into the terminal state, for this reason. Returns the invariant that does not
    /// hold, if that is the reason. The caller wakes all waiters after it releases the state lock.
    fn enter_terminal_state(
        &self,
        state: &mut State,
        error: Error,
        through: u64,
    ) -> Option<&'static str> {
        let terminal = match error {
            Error::Io(cause) => Terminal::Failed { cause: Arc::new(cause), through },
            Error::Internal { invariant } => {
                tracing::error!(
                    dir = %self.dir.path().display(),
                    invariant,
                    "an invariant of the log does not hold"
                );
                Terminal::Broken { invariant }
            }
            error => {
                tracing::error!(error = with_causes(&error), "the commit failed");
                Terminal::Stopped
            }
        };
        let broken = match terminal {
            Terminal::Broken { invariant } => Some(invariant),
            Terminal::Failed { .. } | Terminal::Closed | Terminal::Stopped => None,
        };
        state.core.set_terminal(terminal);
        self.publish_terminal(state);
        broken
    }

    /// Publishes a failure once no commit submitted before it can still become durable.
    pub(super) fn publish_terminal(&self, state: &State) {
        if state.core.has_failed() && !state.core.is_open() {
            self.terminal.set(state.core.terminal());
            self.watermark.set_terminal();
        }
    }
}

fn panic_if_broken(broken: Option<&str>) {
    if let Some(invariant) = broken {
        debug_assert!(false, "this does not hold: {invariant}");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use esker_disk::sim::SimDisk;

    use crate::commit::core::{Numbering, Refusal};
    use crate::{Append, AppendError, Engine, Error, Log, LogError, Options, Seq};

    fn open(disk: &SimDisk) -> Log {
        let mut options = Options::on(Arc::new(disk.clone()));
        options.segment_size = 64 << 10;
        options.engine = Some(Engine::manual());
        Log::builder("/log").options(options).open().unwrap()
    }

    /// The outcome of a call that finds a broken invariant: it panics in debug builds.
    fn broken<T>(call: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(call));
        assert_eq!(done.is_err(), cfg!(debug_assertions), "a broken invariant panics");
        done.ok()
    }

    fn refused<T>(outcome: Result<T, impl Into<Error>>) {
        let error = outcome.err().map(Into::into);
        assert!(matches!(error, Some(Error::Internal { .. })), "{error:?}");
    }

    fn every_call_is_refused(log: &Log) {
        refused(log.append(b"late"));
        refused(log.try_append(b"late"));
        refused(log.write(Append::records(&[b"late"; 2]).atomic()));
        refused(log.barrier());
        refused(log.close());
    }

    /// A log with one durable record, and the ticket of one that is not.
    fn log_with_two_records(disk: &SimDisk) -> (Log, crate::Ticket) {
        let log = open(disk);
        log.append(b"durable").unwrap().blocking_wait().unwrap();
        let waiting = log.append(b"accepted").unwrap();
        (log, waiting)
    }

    /// Guards against a wait that never ends: "full" is the answer to wait for a commit.
    #[test]
    fn a_record_without_an_open_unit_fails_the_log() {
        let disk = SimDisk::new(1);
        let log = open(&disk);
        log.append(b"durable").unwrap().blocking_wait().unwrap();
        let place =
            || log.write.lock().core.place_prepared(Numbering::Next, 4).map_err(Refusal::from);
        let outcome = broken(|| log.write.without_waiting(place).map(drop));
        assert!(outcome.is_none_or(|outcome| {
            matches!(outcome, Err(AppendError::Log(LogError::Internal { .. })))
        }));
        every_call_is_refused(&log);
        let log = open(&disk);
        assert_eq!((log.durable(), log.read(1).unwrap().payload()), (Seq(1), &b"durable"[..]));
        log.close().unwrap();
    }

    #[test]
    fn half_of_an_atomic_batch_is_never_written() {
        let disk = SimDisk::new(1);
        let (log, waiting) = log_with_two_records(&disk);
        let place_two = || {
            let mut state = log.write.lock();
            state.core.prepare_batch(128)?;
            let first = state.core.place_prepared(Numbering::Next, 4)?;
            let (bytes, crc) = first.place.fill(&first.buffer, b"half");
            log.write.fill_tracker(first.unit).filled(bytes, crc);
            let wrong = Numbering::Given { seq: 3, prev: 2 };
            state.core.place_prepared(wrong, 4).map_err(Refusal::from)
        };
        let place = || {
            let refused = place_two();
            // Another caller wants a commit, before the driver knows.
            let last = log.write.lock().core.last_unit();
            log.write.drive(last, None);
            refused
        };
        broken(|| log.write.without_waiting(place).map(drop));
        refused(waiting.blocking_wait());
        every_call_is_refused(&log);
        let log = open(&disk);
        assert_eq!(log.durable(), Seq(1), "only what was durable before");
        log.close().unwrap();
    }

    #[test]
    fn a_commit_without_its_segment_fails_the_log() {
        let disk = SimDisk::new(1);
        let (log, _) = log_with_two_records(&disk);
        let mut stolen = None;
        let mut appended = Ok(());
        while appended.is_ok() && stolen.is_none() {
            appended = log.append([7; 1000]).map(drop).map_err(Error::from);
            stolen = log.write.space.preallocator().take(2);
        }
        assert!(stolen.is_some(), "no segment is preallocated: {appended:?}");
        // Until the next commit enters the segment.
        let outcome = broken(|| {
            loop {
                if let Err(error) = log.append([7; 1000]).and_then(|t| Ok(t.blocking_wait()?)) {
                    return error;
                }
            }
        });
        assert!(outcome.is_none_or(|e| matches!(e, AppendError::Log(LogError::Internal { .. }))));
        every_call_is_refused(&log);
    }

    #[test]
    fn closing_a_log_without_a_segment_fails_it() {
        let disk = SimDisk::new(1);
        let (log, waiting) = log_with_two_records(&disk);
        waiting.blocking_wait().unwrap();
        log.write.segments.table().drop_below(u64::MAX);
        let outcome = broken(|| log.close());
        assert!(outcome.is_none_or(|o| matches!(o, Err(LogError::Internal { .. }))));
        refused(log.append(b"late"));
        drop(log);
        let log = open(&disk);
        assert_eq!(log.durable(), Seq(2));
        log.close().unwrap();
    }
}
