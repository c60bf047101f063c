//! The feed of a stream that reads a log which another process may be writing.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::followed_log::FollowedLog;
use super::poller::{Depth, PolledLog};
use super::scan_snapshot::{RESCAN_PAUSE, SCANS_MAX, Snapshot};
use esker_disk::process;

use crate::base::error::{Error, Result, Trimmed};
use crate::base::position::Seq;
use crate::read::batch::Batch;
use crate::read::cursor::{self, Cursor, Start};
use crate::read::source::{Source, Wait};
use crate::read::stream::Feed;
use crate::read::stream_table::Progress;
use crate::runtime::waiters::{Key, WaitCondition};

/// The poll interval of a blocking call when there is no polling thread.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct FollowerFeed {
    log: Arc<FollowedLog>,
    snapshot: Arc<Snapshot>,
    cursor: Cursor,
    /// The sequence number of the last record delivered, or of the one before the start.
    last: u64,
    /// The start of this stream, until it delivered something.
    start: Option<Start>,
    waiting: PollWait,
    /// The scan of everything that this stream requested because of a bad unit.
    rescan: Option<u64>,
    /// The number of such scans for the same place.
    rescans: usize,
    /// The entry in which others see how far a stream has come.
    progress: Option<(usize, Arc<Progress>)>,
}

impl FollowerFeed {
    pub(super) fn new(log: &Arc<FollowedLog>, start: Start) -> Result<Self> {
        if start == Start::Tip {
            // Records that became durable before this call are not after the tip.
            log.poll(Depth::Manifest)?;
        }
        let snapshot = log.snapshot();
        let exactly = |error| cursor::exactly(&*snapshot, error);
        let start = match start {
            // A new snapshot may have the record at another position.
            Start::Position(position) => {
                Start::From(cursor::read_at(&*snapshot, position).map_err(exactly)?.record().seq)
            }
            start => start,
        };
        let cursor = Cursor::new(&*snapshot, start).map_err(exactly)?;
        let last = match start {
            Start::Tip => snapshot.limit().1,
            Start::Oldest | Start::At(_) | Start::Position(_) => snapshot.low().seq,
            Start::After(seq) => seq.0,
            Start::From(seq) => seq.0.saturating_sub(1),
        };
        Ok(Self {
            log: Arc::clone(log),
            snapshot,
            cursor,
            last,
            start: Some(start).filter(|start| matches!(start, Start::At(_))),
            waiting: PollWait::new(log),
            rescan: None,
            rescans: 0,
            progress: None,
        })
    }

    /// Shows how far it has come to [`ReadOnlyLog::metrics`](super::ReadOnlyLog::metrics) until it
    /// is dropped.
    pub(super) fn registered(mut self) -> Self {
        let (after, position) = self.cursor.start();
        self.progress = Some(self.log.streams.add(after, position));
        self
    }

    /// Whether the scan of everything that this stream requested is still pending.
    fn is_rescan_pending(&mut self, wait: Wait<'_>) -> Result<bool> {
        let (Some(rescan), Wait::Wake(waker)) = (self.rescan, wait) else { return Ok(false) };
        let poller = &self.log.poller;
        if !poller.is_rescanned(rescan) {
            poller.waiters.register(&mut self.waiting.key, WaitCondition::Record(u64::MAX), waker);
            if !poller.is_rescanned(rescan) {
                return Ok(true);
            }
        }
        self.rescan = None;
        self.refuse_to_wait()?;
        Ok(false)
    }

    fn next_of_snapshot(&mut self, wait: Wait<'_>) -> Result<Poll<Option<Batch>>> {
        loop {
            let now = self.log.snapshot();
            if !Arc::ptr_eq(&now, &self.snapshot) {
                // Recovery may have moved records. Their sequence numbers do not change.
                let start = self.start.unwrap_or(Start::After(Seq(self.last)));
                self.cursor =
                    Cursor::new(&*now, start).map_err(|error| cursor::exactly(&*now, error))?;
                self.snapshot = now;
            }
            let next = self.cursor.step(&*self.snapshot, wait);
            if let Some((_, progress)) = &self.progress {
                progress.store_position(self.cursor.position());
            }
            if !Arc::ptr_eq(&self.log.snapshot(), &self.snapshot) {
                continue;
            }
            return match next {
                Ok(Poll::Ready(Some(batch))) => {
                    self.last = batch.last().map_or(self.last, |seq| seq.0);
                    self.start = None;
                    Ok(Poll::Ready(Some(batch)))
                }
                Ok(Poll::Ready(None)) => match &self.snapshot.corruption {
                    Some(corruption) => Err(Error::Corrupted(corruption.clone())),
                    None => Ok(Poll::Ready(None)),
                },
                Err(Error::Quarantined(range)) => {
                    self.last = self.last.max(range.to.0);
                    self.start = None;
                    Err(Error::Quarantined(range))
                }
                other => other,
            };
        }
    }
}

impl Feed for FollowerFeed {
    fn next(&mut self, wait: Wait<'_>) -> Result<Poll<Option<Batch>>> {
        loop {
            self.log.refuse_if_closed()?;
            if self.is_rescan_pending(wait)? {
                return Ok(Poll::Pending);
            }
            let error = match self.next_of_snapshot(wait) {
                Err(error @ (Error::Corrupted(_) | Error::Trimmed(_))) => error,
                Ok(Poll::Pending) => return Ok(Poll::Pending),
                other => {
                    self.rescans = 0;
                    return other;
                }
            };
            let snapshot = self.log.snapshot();
            self.rescans += 1;
            // What was dropped is no corruption: its file may be in use again. A stream from a time
            // searches again instead.
            let is_dropped = self.start.is_none() && self.last < snapshot.low().seq;
            if is_dropped || self.rescans > SCANS_MAX {
                self.rescans = 0;
                return Err(match is_dropped {
                    true => Error::Trimmed(Trimmed { oldest: cursor::oldest(&*snapshot) }),
                    false => cursor::exactly(&*snapshot, error),
                });
            }
            // A recovering writer moves the last records under a reader. Only corruption that a new
            // scan of everything finds again is reported.
            if matches!(wait, Wait::Wake(_)) && !self.log.engine.is_manual() {
                let (rescan, polls) = self.log.poller.request_rescan(&self.log)?;
                self.rescan = Some(rescan);
                self.waiting.since.get_or_insert(polls);
            } else {
                std::thread::sleep(RESCAN_PAUSE);
                self.log.poll(Depth::Rescan)?;
            }
        }
    }

    fn delivered(&self, through: Seq) {
        if let Some((_, progress)) = &self.progress {
            progress.store_seq(through);
        }
    }

    /// Returns the error of a poll that failed while this stream waited.
    fn refuse_to_wait(&self) -> Result<()> {
        self.waiting.refuse_to_wait()
    }

    /// Registers a waker for new records and for a failed poll.
    fn wait(&mut self, waker: &Waker) -> Result<()> {
        // A replaced snapshot may end before the last record that this stream delivered.
        let next = self.last.max(self.snapshot.limit().1).saturating_add(1);
        self.waiting.begin(next, waker)
    }

    fn end_wait(&mut self) {
        self.waiting.end();
    }

    fn poll_interval(&self) -> Option<Duration> {
        self.log.engine.is_manual().then_some(POLL_INTERVAL)
    }
}

impl Drop for FollowerFeed {
    fn drop(&mut self) {
        if process::is_forked() {
            // Another thread may have been changing what this would free.
            std::mem::forget(Arc::clone(&self.log));
        } else if let Some((key, _)) = self.progress.take() {
            self.log.streams.remove(key);
        }
    }
}

/// The wait for a poll that finds more records.
#[derive(Debug)]
pub(super) struct PollWait {
    log: Arc<FollowedLog>,
    key: Option<Key>,
    /// The number of polls when it began.
    since: Option<u64>,
}

impl PollWait {
    pub(super) fn new(log: &Arc<FollowedLog>) -> Self {
        Self { log: Arc::clone(log), key: None, since: None }
    }

    /// Returns the error of a poll that failed meanwhile.
    pub(super) fn refuse_to_wait(&self) -> Result<()> {
        let failure = self.since.and_then(|since| self.log.poller.failure_since(since));
        failure.map_or(Ok(()), Err)
    }

    /// Registers a waker for this record and for a failed poll.
    pub(super) fn begin(&mut self, seq: u64, waker: &Waker) -> Result<()> {
        if self.log.engine.is_manual() {
            self.log.poll(Depth::Manifest)?;
        }
        self.log.poller.waiters.register(&mut self.key, WaitCondition::Record(seq), waker);
        if !self.log.engine.is_manual() {
            let polls = self.log.poller.begin(&self.log)?;
            self.since.get_or_insert(polls);
        }
        Ok(())
    }

    fn end(&mut self) {
        self.since = None;
        if let Some(key) = self.key.take() {
            self.log.poller.waiters.remove(key);
        }
    }
}

impl Drop for PollWait {
    fn drop(&mut self) {
        self.end();
    }
}
