//! Polling for a writer in another process: one thread polls for all waiting streams.
//!
//! A writer in another process cannot notify a waiting stream here, so a thread polls the watermark
//! page. One thread does so for all streams of a reader. It starts with the first stream that
//! waits, polls at varying intervals while any stream waits, sleeps while none does, and ends with
//! the reader.
//!
//! A poll of an unchanged watermark is one read of a few bytes from the page cache. So the thread
//! polls often while records arrive, and less often, up to every [`MOST`], while none do. Every
//! [`CLOSELY`] it also checks whether the log was closed, or opened again without a commit. Inotify
//! would save the reads of an idle log, but each commit of the writer would pay for it. It also
//! reports nothing on a file system of another machine.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::base::error::{Error, Result};
use crate::runtime::waiters::Waiters;

/// The poll interval after a poll that found something, and the longest one. The interval doubles.
const FIRST: Duration = Duration::from_micros(100);
const MOST: Duration = Duration::from_millis(4);
/// How often a poll also checks the manifest while the watermark is unchanged.
const CLOSELY: Duration = Duration::from_millis(50);
/// After an expensive poll the thread pauses for at least this many times its duration.
const SHARE: u32 = 8;

/// What a poll reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// The watermark; everything if it names a new session.
    Mark,
    /// Also whether the log was closed or records were dropped, if the watermark is unchanged.
    Facts,
    /// The whole directory, dropping the cache of earlier reads.
    Everything,
}

/// The result of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    Nothing,
    /// More is durable.
    Further,
    /// The whole directory was scanned again.
    Anew,
}

/// A log that can be polled.
pub(super) trait Watched: Send + Sync + 'static {
    /// Polls, and wakes the readers that the result concerns.
    fn look(&self, depth: Depth) -> Result<News>;
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
    stands: bool,
    over: bool,
    /// A stream asked for a scan of everything.
    whole: bool,
    /// The number of scans of everything begun, and of those ended.
    begun: u64,
    ended: u64,
    looks: u64,
    /// The number of the last poll, if it failed, and its error.
    failed: Option<(u64, Error)>,
}

impl Poller {
    /// Starts or wakes the polling thread for a registered waiter. Returns the number of polls so
    /// far.
    pub(super) fn begin(self: &Arc<Self>, follow: &Arc<impl Watched>) -> Result<u64> {
        let mut state = self.state.lock();
        self.run(follow, &mut state)?;
        Ok(state.looks)
    }

    /// Requests a scan of everything that begins after this call. Returns its number for
    /// [`Poller::is_ended`], and the number of polls so far.
    pub(super) fn ask_whole(self: &Arc<Self>, follow: &Arc<impl Watched>) -> Result<(u64, u64)> {
        let mut state = self.state.lock();
        state.whole = true;
        self.run(follow, &mut state)?;
        Ok((state.begun + 1, state.looks))
    }

    /// Whether that scan of everything has ended.
    pub(super) fn is_ended(&self, whole: u64) -> bool {
        self.state.lock().ended >= whole
    }

    /// The error of the last poll, if it failed and came after this many.
    pub(super) fn failure_since(&self, looks: u64) -> Option<Error> {
        let state = self.state.lock();
        let (_, error) = state.failed.as_ref().filter(|(number, _)| *number > looks)?;
        Some(error.clone())
    }

    /// Ends the thread and wakes all waiters.
    pub(super) fn end(&self) {
        self.state.lock().over = true;
        self.changed.notify_all();
        self.waiters.wake_all();
    }

    fn run(self: &Arc<Self>, follow: &Arc<impl Watched>, state: &mut State) -> Result<()> {
        if state.over {
            return Err(Error::Closed);
        }
        if state.stands || state.whole {
            state.stands = false;
            self.changed.notify_all();
        }
        if !state.runs {
            let (watch, follow) = (Arc::clone(self), Arc::downgrade(follow));
            let thread = std::thread::Builder::new().name("esker-follow".into());
            thread
                .spawn(move || watch.look_for_all(&follow))
                .map_err(|cause| Error::NoThread(Arc::new(cause)))?;
            state.runs = true;
        }
        Ok(())
    }

    fn look_for_all(&self, follow: &Weak<impl Watched>) {
        let _gone = ThreadGuard(self);
        let mut pause = FIRST;
        let mut closely = Instant::now() + CLOSELY;
        while let Some(depth) = self.next_look(&mut pause, &mut closely) {
            let Some(follow) = follow.upgrade() else { return };
            let begin = Instant::now();
            let outcome = follow.look(depth);
            let took = begin.elapsed();
            // The last handle may have been dropped meanwhile. Then this ends the polling.
            drop(follow);
            let mut state = self.state.lock();
            state.looks += 1;
            if depth == Depth::Everything {
                state.ended = state.begun;
            }
            pause = match outcome {
                Ok(News::Nothing) => (pause * 2).min(MOST),
                Ok(News::Further | News::Anew) => FIRST,
                Err(_) => MOST,
            };
            // A scan of everything, done when there is no watermark, is expensive and must not be
            // repeated at the short interval. A scan that a new writer made necessary may be.
            let dear = !matches!(outcome, Ok(News::Further | News::Anew));
            let pause = if dear { pause.max(took * SHARE) } else { pause };
            let failed = outcome.err();
            let tell = failed.is_some() || depth == Depth::Everything;
            state.failed = failed.map(|error| (state.looks, error));
            drop(state);
            if tell {
                self.waiters.wake_all();
            }
            let mut state = self.state.lock();
            if !state.over && !state.whole {
                self.changed.wait_for(&mut state, pause);
            }
        }
    }

    /// Sleeps while no stream waits, then returns what to poll. `None` when the poller was ended.
    fn next_look(&self, pause: &mut Duration, closely: &mut Instant) -> Option<Depth> {
        let mut state = self.state.lock();
        while !state.over && !state.whole && !self.waiters.has_readers() {
            *pause = FIRST;
            state.stands = true;
            self.changed.wait(&mut state);
        }
        state.stands = false;
        if state.over {
            return None;
        }
        if std::mem::take(&mut state.whole) {
            state.begun += 1;
            return Some(Depth::Everything);
        }
        let now = Instant::now();
        if now < *closely {
            return Some(Depth::Mark);
        }
        *closely = now + CLOSELY;
        Some(Depth::Facts)
    }
}

/// Wakes the waiters when the thread ends for any reason. The next one to wait starts another.
struct ThreadGuard<'a>(&'a Poller);

impl Drop for ThreadGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.runs = false;
        state.ended = state.begun;
        drop(state);
        self.0.waiters.wake_all();
    }
}
