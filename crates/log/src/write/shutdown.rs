//! Closing a log: makes everything durable, writes the clean-close marker, releases the lock.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use esker_disk::OpenMode;

use crate::base::error::{Result, Terminal};
use crate::base::log_error::LogError;
use crate::base::operation_errors::WaitError;
use crate::commit::committer::Committer;
use crate::commit::core::schedule::Event;
use crate::commit::maintenance::end_segment;
use crate::commit::preallocator::ReadySegment;
use crate::commit::retention::{expire, retain, unless_full};
use crate::commit::write_half::WriteHalf;
use crate::runtime::parked_thread::{park, thread_waker};
use crate::runtime::waiters::{Registration, WaitCondition};
use crate::store::manifest::End;
use crate::store::paths;
use crate::store::segment_footer::closing_footer;

/// Closing reads no record, and drops none above the watermark.
const CLOSING: &str = "a log is closed, or fails as any operation can";

impl WriteHalf {
    pub(crate) fn close(&self, deadline: Option<Instant>) -> Result<(), WaitError> {
        if self.closed.swap(true, SeqCst) {
            return Err(LogError::Closed.into());
        }
        let unit = {
            let mut state = self.lock();
            state.core.set_terminal(Terminal::Closed);
            let unit = state.core.last_unit();
            // Waiting for it, below, runs the commit.
            state.core.on(Event::Closed);
            unit
        };
        let durable_or_failed = self.await_durable(unit, deadline);
        let outcome = self.take_committer(deadline).and_then(|committer| {
            // Whatever the outcome, no maintenance may run after the directory lock is released.
            let _changing = self.change_segments();
            // Wait for a running preallocation. A later one sees the terminal state and returns.
            drop(self.space.lock_reserve());
            let unused = self.space.preallocator().close();
            let Some(mut committer) = committer else {
                return durable_or_failed.and(Err(LogError::Stopped.into()));
            };
            let ended = durable_or_failed.and_then(|()| {
                let ended = self.end(&mut committer, unused);
                Ok(ended.map_err(|error| LogError::narrow(error, CLOSING))?)
            });
            self.lock().committer = Some(committer);
            ended
        });
        self.terminal.set(self.lock().core.terminal());
        self.watermark.set_terminal();
        self.wake_all();
        if !matches!(outcome, Err(WaitError::Timeout)) {
            *self.lock.lock() = None;
        }
        outcome
    }

    /// Waits until no commit is in flight. `None` when the thread that had the committer panicked.
    fn take_committer(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Option<Box<Committer>>, WaitError> {
        let mut state = self.lock();
        loop {
            if !state.core.has_in_flight() {
                if let Some(committer) = state.committer.take() {
                    return Ok(Some(committer));
                }
                if state.committer_lost {
                    return Ok(None);
                }
            }
            match deadline {
                None => self.committer_idle.wait(&mut state),
                Some(deadline)
                    if self.committer_idle.wait_until(&mut state, deadline).timed_out() =>
                {
                    return Err(WaitError::Timeout);
                }
                Some(_) => {}
            }
        }
    }

    /// Waits until the unit is durable, or can no longer become durable.
    fn await_durable(&self, unit: u64, deadline: Option<Instant>) -> Result<(), WaitError> {
        let mut place = Registration::new(&self.waiters);
        loop {
            if let Some(outcome) = self.durable_or_failed(unit) {
                return Ok(outcome?);
            }
            if self.drive(unit, deadline) {
                continue;
            }
            let last = self.lock().core.last_seq();
            self.waiters.register(&mut place.key, WaitCondition::Durable(last), &thread_waker());
            // The commit in flight may have ended, or failed, before this thread was registered.
            if self.durable_or_failed(unit).is_none() && !park(deadline) {
                return Err(WaitError::Timeout);
            }
        }
    }

    fn durable_or_failed(&self, unit: u64) -> Option<Result<(), LogError>> {
        let state = self.lock();
        match state.core.failure() {
            Some(terminal) => Some(Err(terminal.refusal())),
            None => (state.core.durable().unit >= unit).then_some(Ok(())),
        }
    }

    /// Everything is durable: leaves the directory in the state of a closed log.
    fn end(&self, committer: &mut Committer, unused: VecDeque<(u64, ReadySegment)>) -> Result<()> {
        // Maintenance may have failed after everything became durable.
        if let Some(terminal) = self.lock().core.failure() {
            return Err(terminal.refusal().into());
        }
        unless_full(retain(self).and_then(|()| expire(self)))?;
        for (number, _) in &unused {
            self.dir.unlink(&paths::segment(*number))?;
        }
        if !unused.is_empty() {
            self.dir.sync()?;
        }
        committer.end_file(self)?;
        let newest = self.newest_segment()?;
        for segment in self.segments.table().all() {
            let state = segment.state.read();
            let unfooted = state.full && !state.footed;
            drop(state);
            if unfooted && segment.number() != newest.number() {
                let file = self.dir.open(&segment.name(), OpenMode::write())?;
                end_segment(self, &*file, &segment)?;
            }
        }
        let state = newest.state.read();
        let end = End {
            segment: newest.number(),
            offset: state.end,
            seq: state.last_seq,
            chain: committer.chain(),
        };
        drop(state);
        let retention = self.retention();
        let has_appended = self.lock().core.appended().0 > 0;
        let records = retention.is_set() || has_appended || self.options.retention.is_set();
        let footer = closing_footer(&newest, self.options.index_bytes);
        self.change_manifest_with(footer.as_ref().map(|footer| (footer, newest.salt)), |manifest| {
            manifest.durable = end.seq;
            manifest.clean = Some(end);
            if records {
                manifest.retention = retention;
            }
        })
    }
}
