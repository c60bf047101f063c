//! Waiting for what another process writes: one place that looks for all who wait.
//!
//! Another process cannot wake anybody here, so somebody has to look at the page with the mark. That is
//! one thread for all streams of a reader. It starts with the first who waits, looks at shorter and longer
//! intervals while anybody does, stands still while nobody does, and ends with the reader.
//!
//! A look at a mark that stands still is one read of a few bytes that are in the page cache. So it is made
//! often while records come, and less often, up to [`MOST`], while none do. At every [`CLOSELY`] it also looks
//! whether the log was closed, or opened again without a commit. Inotify would spare the reads of an idle log,
//! and would charge each commit of the writer for them; and it tells nothing of a file system on another
//! machine.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::base::error::{Error, Result};
use crate::runtime::waiters::Waiters;

/// The interval between two looks: behind one that found something, and at most. It doubles.
const FIRST: Duration = Duration::from_micros(100);
const MOST: Duration = Duration::from_millis(4);
/// How often a mark that stands still is not taken at its word.
const CLOSELY: Duration = Duration::from_millis(50);
/// A look rests so many times as long as it took, at least.
const SHARE: u32 = 8;

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// At the mark, unless that tells of a new session.
    Mark,
    /// And where it stands still, whether the log was closed or records were dropped.
    Facts,
    /// At everything, and forget what was read before.
    Everything,
}

/// What a look brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    Nothing,
    /// More is durable.
    Further,
    /// Everything was looked at.
    Anew,
}

/// A log that is watched.
pub(super) trait Watched: Send + Sync + 'static {
    /// Looks, and wakes the readers that wait for what it brings.
    fn look(&self, depth: Depth) -> Result<News>;
}

/// Those who wait for another process.
#[derive(Debug, Default)]
pub(super) struct Poller {
    pub(super) waiters: Waiters,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// There is a thread.
    runs: bool,
    /// It waits for somebody to wait.
    stands: bool,
    over: bool,
    /// Somebody wants a look at everything.
    whole: bool,
    /// Looks at everything that began, and that ended.
    begun: u64,
    ended: u64,
    looks: u64,
    /// The last look that failed, and why.
    failed: Option<(u64, Error)>,
}

impl Poller {
    /// Somebody is on the list and waits; the number of looks so far.
    pub(super) fn begin(self: &Arc<Self>, follow: &Arc<impl Watched>) -> Result<u64> {
        let mut state = self.state.lock();
        self.run(follow, &mut state)?;
        Ok(state.looks)
    }

    /// Asks for a look at everything that begins after this call; what [`Poller::is_ended`] is asked for,
    /// and the number of looks so far.
    pub(super) fn ask_whole(self: &Arc<Self>, follow: &Arc<impl Watched>) -> Result<(u64, u64)> {
        let mut state = self.state.lock();
        state.whole = true;
        self.run(follow, &mut state)?;
        Ok((state.begun + 1, state.looks))
    }

    /// Whether that look at everything has ended.
    pub(super) fn is_ended(&self, whole: u64) -> bool {
        self.state.lock().ended >= whole
    }

    /// Why a look failed that came after so many.
    pub(super) fn failure_since(&self, looks: u64) -> Option<Error> {
        let state = self.state.lock();
        let (_, error) = state.failed.as_ref().filter(|(number, _)| *number > looks)?;
        Some(error.clone())
    }

    /// Ends the thread, and tells whoever waits.
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
            thread.spawn(move || watch.look_for_all(&follow)).map_err(no_thread)?;
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
            // The last handle may have gone meanwhile; then this ends the watch.
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
            // A look at everything, where there is no mark, is not repeated as if it cost nothing. One that
            // a new writer made necessary is.
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

    /// Stands still while nobody waits; how closely to look then. `None` when it is over.
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

/// However the thread ends, those who wait hear of it; the next who waits starts another.
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

#[allow(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn no_thread(why: std::io::Error) -> Error {
    let thread = std::path::Path::new("a thread");
    esker_disk::Error::new(esker_disk::Op::Open, thread, None, why).into()
}
