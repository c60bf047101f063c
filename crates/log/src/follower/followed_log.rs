//! State shared by the handles and streams of one reader.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use esker_disk::{Dir, process};
use parking_lot::{Mutex, RwLock};

use super::poller::{Depth, PollResult, PolledLog, Poller};
use super::scan_snapshot::Snapshot;
use crate::base::error::Result;
use crate::base::log_error::{LogError, refuse_if_forked};
use crate::base::read_options::ReadOptions;
use crate::consumers::Consumers;
use crate::read::read_counts::ReadCounts;
use crate::read::source::Source;
use crate::read::stream_table::StreamTable;
use crate::runtime::deferred_wakes::DeferredWakes;
use crate::runtime::engine::Engine;

#[derive(Debug)]
pub(super) struct FollowedLog {
    /// The directory that was opened, even if it is moved.
    pub(super) dir: Arc<dyn Dir>,
    pub(super) options: ReadOptions,
    /// Its threads read ahead, and read for async tasks.
    pub(super) engine: Engine,
    /// The result of one directory scan. Replaced as a whole.
    pub(super) snapshot: RwLock<Arc<Snapshot>>,
    pub(super) consumers: Consumers,
    /// Held during a poll.
    pub(super) poll_lock: Mutex<()>,
    pub(super) poller: Arc<Poller>,
    pub(super) streams: StreamTable,
    pub(super) read_counts: Arc<ReadCounts>,
    /// The number of polls, and of those that scanned the directory.
    pub(super) polls: AtomicU64,
    pub(super) scans: AtomicU64,
    pub(super) closed: AtomicBool,
}

impl FollowedLog {
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read())
    }

    pub(super) fn refuse_if_closed(&self) -> Result<(), LogError> {
        refuse_if_forked()?;
        if self.closed.load(SeqCst) { Err(LogError::Closed) } else { Ok(()) }
    }

    pub(super) fn close(&self) {
        if process::is_forked() {
            return;
        }
        self.closed.store(true, SeqCst);
        self.poller.end();
        if self.options.engine.is_none() {
            self.engine.stop();
        }
        self.snapshot().supersede();
    }
}

impl PolledLog for FollowedLog {
    /// Polls, and wakes the waiting streams that the result concerns.
    fn poll(&self, depth: Depth) -> Result<PollResult> {
        // Dropped after the lock: a waker may poll.
        let _wakes = DeferredWakes::new();
        let _lock = self.poll_lock.lock();
        self.polls.fetch_add(1, Relaxed);
        let snapshot = self.snapshot();
        let before = snapshot.limit().1;
        if depth != Depth::Rescan
            && snapshot.follow_watermark(&*self.dir, &self.options, depth == Depth::Manifest)?
        {
            let last = snapshot.limit().1;
            if last == before {
                return Ok(PollResult::Unchanged);
            }
            self.poller.waiters.wake_readers(last, &mut Vec::new());
            return Ok(PollResult::Advanced);
        }
        self.scans.fetch_add(1, Relaxed);
        let now = Snapshot::rescan(&*self.dir, &self.options, &self.engine, &self.read_counts)?;
        if depth != Depth::Rescan && now.found_the_same(&snapshot) {
            return Ok(PollResult::Unchanged);
        }
        *self.snapshot.write() = now;
        snapshot.supersede();
        self.poller.waiters.wake_all();
        Ok(PollResult::Rescanned)
    }
}

impl Drop for FollowedLog {
    fn drop(&mut self) {
        if !process::is_forked() {
            self.poller.end();
        }
    }
}
