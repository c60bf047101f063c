//! Polling for a writer in another process: one thread polls for all waiting streams.
//!
//! A writer in another process cannot notify a waiting stream here, so a thread polls the watermark
//! page. One thread does so for all streams of a reader. It starts with the first stream that
//! waits, polls at varying intervals while any stream waits, sleeps while none does, and ends with
//! the reader.
//!
//! A poll of an unchanged watermark is one read of a few bytes from the page cache. So the thread
//! polls often while records arrive, and less often, up to every [`POLL_INTERVAL_MAX`], while none
//! do. Every [`MANIFEST_INTERVAL`] it also checks whether the log was closed, or opened again
//! without a commit. Inotify would save the reads of an idle log, but each commit of the writer
//! would pay for it. It also reports nothing on a file system of another machine.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::base::error::{Error, Result};
use crate::runtime::waiters::Waiters;

/// The poll interval after a poll that found records, and the longest one. The interval doubles.
const POLL_INTERVAL_MIN: Duration = Duration::from_micros(100);
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(4);
/// How often a poll also checks the manifest while the watermark is unchanged.
const MANIFEST_INTERVAL: Duration = Duration::from_millis(50);
/// After an expensive poll the thread pauses for at least this many times its duration.
const PAUSES_PER_POLL: u32 = 8;

/// How much a poll reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// The watermark; everything if it names a new session.
    Watermark,
    /// Also whether the log was closed or records were dropped, if the watermark is unchanged.
    Manifest,
    /// The whole directory, dropping the cache of earlier reads.
    Rescan,
}

/// The result of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PollResult {
    Unchanged,
    /// More is durable.
    Advanced,
    /// The whole directory was scanned again.
    Rescanned,
}

/// A log that can be polled.
pub(super) trait PolledLog: Send + Sync + 'static {
    /// Polls, and wakes the readers that the result concerns.
    fn poll(&self, depth: Depth) -> Result<PollResult>;
}

/// The streams that wait for a writer in another process, and the state of their polling thread.
#[derive(Debug, Default)]
pub(super) struct Poller {
    pub(super) waiters: Waiters,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The polling thread exists.
    runs: bool,
    /// It sleeps until a stream waits.
    sleeps: bool,
    ended: bool,
    /// A stream asked for a scan of everything.
    rescan_requested: bool,
    /// The number of scans of everything begun, and of those ended.
    rescans: u64,
    rescans_done: u64,
    polls: u64,
    /// The number of the last poll, if it failed, and its error.
    failed: Option<(u64, Error)>,
}

impl Poller {
    /// Starts or wakes the polling thread for a registered waiter. Returns the number of polls so
    /// far.
    pub(super) fn begin(self: &Arc<Self>, log: &Arc<impl PolledLog>) -> Result<u64> {
        let mut state = self.state.lock();
        self.run(log, &mut state)?;
        Ok(state.polls)
    }

    /// Requests a scan of everything that begins after this call. Returns its number for
    /// [`Poller::is_rescanned`], and the number of polls so far.
    pub(super) fn request_rescan(
        self: &Arc<Self>,
        log: &Arc<impl PolledLog>,
    ) -> Result<(u64, u64)> {
        let mut state = self.state.lock();
        state.rescan_requested = true;
        self.run(log, &mut state)?;
        Ok((state.rescans + 1, state.polls))
    }

    /// Whether that scan of everything has ended.
    pub(super) fn is_rescanned(&self, rescan: u64) -> bool {
        self.state.lock().rescans_done >= rescan
    }

    /// The error of the last poll, if it failed and came after this many.
    pub(super) fn failure_since(&self, polls: u64) -> Option<Error> {
        let state = self.state.lock();
        let (_, error) = state.failed.as_ref().filter(|(number, _)| *number > polls)?;
        Some(error.clone())
    }

    /// Ends the thread and wakes all waiters.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
        self.waiters.wake_all();
    }

    fn run(self: &Arc<Self>, log: &Arc<impl PolledLog>, state: &mut State) -> Result<()> {
        if state.ended {
            return Err(Error::Closed);
        }
        if state.sleeps || state.rescan_requested {
            state.sleeps = false;
            self.changed.notify_all();
        }
        if !state.runs {
            let (poller, log) = (Arc::clone(self), Arc::downgrade(log));
            let thread = std::thread::Builder::new().name("esker-follow".into());
            thread.spawn(move || poller.poll_for_all(&log)).map_err(Error::no_thread)?;
            state.runs = true;
        }
        Ok(())
    }

    fn poll_for_all(&self, log: &Weak<impl PolledLog>) {
        let _guard = ThreadGuard(self);
        let mut pause = POLL_INTERVAL_MIN;
        let mut check_manifest = Instant::now() + MANIFEST_INTERVAL;
        while let Some(depth) = self.next_poll(&mut pause, &mut check_manifest) {
            let Some(log) = log.upgrade() else { return };
            let begin = Instant::now();
            let outcome = log.poll(depth);
            let took = begin.elapsed();
            // The last handle may have been dropped meanwhile. Then this ends the polling.
            drop(log);
            let mut state = self.state.lock();
            state.polls += 1;
            if depth == Depth::Rescan {
                state.rescans_done = state.rescans;
            }
            pause = match outcome {
                Ok(PollResult::Unchanged) => (pause * 2).min(POLL_INTERVAL_MAX),
                Ok(PollResult::Advanced | PollResult::Rescanned) => POLL_INTERVAL_MIN,
                Err(_) => POLL_INTERVAL_MAX,
            };
            // A scan of everything, done when there is no watermark, is expensive and must not be
            // repeated at the short interval. A scan that a new writer made necessary may be.
            let expensive = !matches!(outcome, Ok(PollResult::Advanced | PollResult::Rescanned));
            let pause = if expensive { pause.max(took * PAUSES_PER_POLL) } else { pause };
            let failed = outcome.err();
            let wake_all = failed.is_some() || depth == Depth::Rescan;
            state.failed = failed.map(|error| (state.polls, error));
            drop(state);
            if wake_all {
                self.waiters.wake_all();
            }
            let mut state = self.state.lock();
            if !state.ended && !state.rescan_requested {
                self.changed.wait_for(&mut state, pause);
            }
        }
    }

    /// Sleeps while no stream waits, then returns what to poll. `None` when the poller was ended.
    fn next_poll(&self, pause: &mut Duration, check_manifest: &mut Instant) -> Option<Depth> {
        let mut state = self.state.lock();
        while !state.ended && !state.rescan_requested && !self.waiters.has_readers() {
            *pause = POLL_INTERVAL_MIN;
            state.sleeps = true;
            self.changed.wait(&mut state);
        }
        state.sleeps = false;
        if state.ended {
            return None;
        }
        if std::mem::take(&mut state.rescan_requested) {
            state.rescans += 1;
            return Some(Depth::Rescan);
        }
        let now = Instant::now();
        if now < *check_manifest {
            return Some(Depth::Watermark);
        }
        *check_manifest = now + MANIFEST_INTERVAL;
        Some(Depth::Manifest)
    }
}

/// Wakes the waiters when the thread ends for any reason. The next one to wait starts another.
struct ThreadGuard<'a>(&'a Poller);

impl Drop for ThreadGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.runs = false;
        state.rescans_done = state.rescans;
        drop(state);
        self.0.waiters.wake_all();
    }
}
