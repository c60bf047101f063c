//! Closing a log.

use std::sync::Arc;

use crate::durability::checkpoint::Checkpoint;
use crate::index::page::State;
use crate::index::slot_locks::{AllLocks, PromiseState};
use crate::record;
use crate::state::inner::{CloseWithLastHandle, ConsensusLog, Inner};
use crate::storage_error::StorageError;

impl ConsensusLog {
    /// Closes the log: makes all entries durable, including accepted ones in
    /// [`Mode::Volatile`](crate::Mode::Volatile), writes a checkpoint, and releases the lock.
    /// Blocks meanwhile. Later calls return [`StorageError::Closed`], and so does a second close.
    ///
    /// # Errors
    /// The error that kept data from becoming durable. The log is closed in any case; the next
    /// opening recovers.
    pub fn close(&self) -> Result<(), StorageError> {
        self.inner.close()
    }
}

impl Inner {
    pub(crate) fn close(&self) -> Result<(), StorageError> {
        self.refuse_if_closed()?;
        self.background.stop();
        // A waker may close the log on the thread that takes a checkpoint. That one stays
        // unfinished, and none can be taken: it may have appended a page that the index does not
        // name yet.
        let running = self.checkpoints.lock();
        self.count_durable(&crossbeam_epoch::pin());
        let mut locks = self.all_locks()?;
        if locks.promise_state().closed {
            return Err(StorageError::Closed);
        }
        let last = self.writable(&locks.promise_state()).and_then(|()| {
            self.write_what_only_memory_has(&mut locks)?;
            self.count_in_memory(&crossbeam_epoch::pin());
            Ok(running.is_some().then(|| self.begin_checkpoint(&locks, 0)))
        });
        // No operation decides from here on. Reads continue until everything is durable.
        locks.close();
        drop(locks);
        let last_checkpoint = |last: Option<Checkpoint>| match last {
            Some(checkpoint) => self.last_checkpoint(checkpoint),
            None => Ok(()),
        };
        let written = last.and_then(|last| match last_checkpoint(last) {
            // A checkpoint is optional: without it opening replays more.
            Err(StorageError::Log(error @ esker_log::Error::NoSpace { .. })) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to write a checkpoint before closing"
                );
                Ok(())
            }
            written => written,
        });
        self.status.close();
        self.budget.close();
        self.frontier.waiters().wake();
        let closed = self.log.close().map_err(StorageError::from_log);
        match written {
            Err(StorageError::ReadOnly { .. }) | Ok(()) => closed,
            Err(error) => Err(error),
        }
    }

    /// Appends what only memory has, before a close that does not happen if there is no room for
    /// it, or before a backup.
    pub(crate) fn save_uncommitted(&self) -> Result<(), StorageError> {
        // A log that is read-only has nothing that its records lack.
        if !self.is_volatile() || self.status.read_only().is_some() {
            return Ok(());
        }
        let mut locks = self.all_locks()?;
        self.writable(&locks.promise_state())?;
        self.write_what_only_memory_has(&mut locks)
    }

    /// Appends the promise and the values that only memory has, so that an orderly close loses
    /// none. The checkpoint also has the promise, but there may be no room for it.
    fn write_what_only_memory_has(&self, locks: &mut AllLocks<'_>) -> Result<(), StorageError> {
        let PromiseState { promise, is_promised, is_recorded, .. } = locks.promise_state();
        if is_promised && !is_recorded {
            drop(self.append_internal(|out| record::promise(out, promise))?);
            locks.promise(promise, true);
        }
        let guard = crossbeam_epoch::pin();
        let mut only_here = Vec::new();
        self.each_uncommitted(0, &guard, |slot, resident| only_here.push((slot, resident)));
        let mut tickets = Vec::new();
        for (slot, resident) in only_here {
            let page = self.known_page(slot, &guard)?;
            let indexed = page.slot(slot);
            if indexed.word().state() == State::Accepted && indexed.word().seq() == 0 {
                let ballot = resident.ballot;
                let ticket = self
                    .append_internal(|out| record::accept(out, slot, ballot, resident.value()))?;
                indexed.set_word(indexed.word().moved(ticket.seq().0));
                page.touch();
                tickets.push(ticket);
            }
        }
        Ok(())
    }
}

/// Closes the log when the last handle is dropped.
#[derive(Debug)]
pub(crate) struct CloseOnDrop(pub(crate) Arc<Inner>);

impl CloseWithLastHandle for CloseOnDrop {}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        match self.0.close() {
            Ok(()) | Err(StorageError::Closed) => {}
            // Another thread may have been changing what this would free.
            Err(StorageError::Forked) => std::mem::forget(Arc::clone(&self.0)),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the consensus log was not closed cleanly"
            ),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::pin::pin;
    use std::sync::{Mutex, mpsc};
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    use esker_disk::Op;
    use esker_disk::sim::{Effect, Fault, SimDisk};

    use super::*;
    use crate::component::COMPONENT;
    use crate::{Ballot, Options, Slot};

    /// Drops the handle that it has, which may be the last one.
    struct ClosingWaker(Mutex<Option<ConsensusLog>>);

    impl Wake for ClosingWaker {
        fn wake(self: Arc<Self>) {
            let log = self.0.lock().unwrap().take();
            drop(log);
        }
    }

    /// A background job has no handle, so a waker that it calls may drop the last one. Guards
    /// against a close that waits for the checkpoint that its own thread takes.
    #[test]
    fn a_waker_may_close_the_log_where_a_checkpoint_is_taken() {
        for write_fails in [false, true] {
            let disk = SimDisk::new(1);
            let open = || {
                let mut options = Options::on(Arc::new(disk.clone()));
                options.log.engine = Some(esker_log::Engine::manual());
                ConsensusLog::builder("/log").options(options).open().unwrap()
            };
            let (done, ended) = mpsc::channel();
            let log = open();
            let faults = disk.clone();
            std::thread::spawn(move || {
                let ballot = Ballot { number: 1, node: 1 };
                log.accept(Slot(0), ballot, b"value").unwrap().blocking_wait().unwrap();
                let waker = Arc::new(ClosingWaker(Mutex::default()));
                let task = Waker::from(Arc::clone(&waker));
                let mut watch = log.watch();
                let mut moves = pin!(watch.changed());
                assert!(moves.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
                log.commit(Slot(0), ballot).unwrap().blocking_wait().unwrap();
                if write_fails {
                    faults.inject(Fault::on(Op::Write, Effect::Io));
                }
                let inner = Arc::clone(&log.inner);
                *waker.0.lock().unwrap() = Some(log);
                let named = || inner.log.component().app_metadata(COMPONENT).unwrap();
                let before = named();
                drop(inner.checkpoint_now());
                assert!(waker.0.lock().unwrap().is_none(), "no task is woken");
                assert!(inner.status.is_closed());
                assert_eq!(named(), before, "a checkpoint is taken inside another");
                done.send(()).unwrap();
            });
            ended.recv_timeout(Duration::from_secs(60)).unwrap();
            disk.clear_faults();
            let log = open();
            assert_eq!(log.read(Slot(0), &log.pin()).unwrap().value(), b"value");
            log.close().unwrap();
        }
    }
}
