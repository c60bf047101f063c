//! State shared by the handles and streams of one reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use esker_disk::Dir;
use parking_lot::{Mutex, RwLock};

use super::poller::{Depth, News, Poller, Watched};
use super::snapshot::Snapshot;
use crate::base::error::{Error, Result};
use crate::base::options::Options;
use crate::read::source::Source;
use crate::runtime::engine::Engine;

#[derive(Debug)]
pub(super) struct Follow {
    /// The directory that was opened, even if it is moved.
    pub(super) dir: Arc<dyn Dir>,
    pub(super) options: Options,
    /// Its threads read ahead, and read for async tasks.
    pub(super) engine: Engine,
    /// The result of one directory scan. Replaced as a whole.
    pub(super) snapshot: RwLock<Arc<Snapshot>>,
    /// Held during a poll.
    pub(super) looking: Mutex<()>,
    pub(super) watch: Arc<Poller>,
    pub(super) closed: AtomicBool,
}

impl Follow {
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read())
    }

    pub(super) fn refuse_if_closed(&self) -> Result<()> {
        if self.closed.load(SeqCst) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.watch.end();
        if self.options.engine.is_none() {
            self.engine.stop();
        }
        self.snapshot().supersede();
    }
}

impl Watched for Follow {
    /// Polls, and wakes the waiting streams that the result concerns.
    fn look(&self, depth: Depth) -> Result<News> {
        let _looking = self.looking.lock();
        let snapshot = self.snapshot();
        let before = snapshot.limit().1;
        if depth != Depth::Everything
            && snapshot.follow_mark(&*self.dir, &self.options, depth == Depth::Facts)?
        {
            let last = snapshot.limit().1;
            if last == before {
                return Ok(News::Nothing);
            }
            self.watch.waiters.wake_readers(last, &mut Vec::new());
            return Ok(News::Further);
        }
        let now = Snapshot::look_again(&*self.dir, &self.options, &self.engine)?;
        if depth != Depth::Everything && now.is_like(&snapshot) {
            return Ok(News::Nothing);
        }
        *self.snapshot.write() = now;
        snapshot.supersede();
        self.watch.waiters.wake_all();
        Ok(News::Anew)
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.watch.end();
    }
}
