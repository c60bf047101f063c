//! The logs that a manager has open: found by key, in shards with a lock each.
//!
//! A key has at most one log open, ever: while one is being opened or closed, a marker is in its
//! place, and callers of the key wait. The number of references to a log is that of its `Arc`s
//! besides the one in here. It can rise from zero only under the lock of the shard, so under that
//! lock an idle log stays idle.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use foldhash::fast::RandomState;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::manager::log_guard::{LogGuard, OpenLog};
use crate::state::inner::ConsensusLog;

const SHARD_COUNT: usize = 64;

/// A log that is being opened or closed.
#[derive(Debug, Default)]
pub(super) struct Transition {
    over: Mutex<bool>,
    ended: Condvar,
}

impl Transition {
    pub(super) fn wait(&self) {
        let mut over = self.over.lock();
        while !*over {
            self.ended.wait(&mut over);
        }
    }
}

#[derive(Debug)]
enum ShardEntry {
    Open(Arc<OpenLog>),
    Busy(Arc<Transition>),
}

type Shard = HashMap<Arc<[u8]>, ShardEntry, RandomState>;

/// Each shard on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct PaddedShard(Mutex<Shard>);

#[derive(Debug)]
pub(super) struct OpenLogs {
    shards: Box<[PaddedShard]>,
    hasher: RandomState,
    /// Logs that are open, or being opened or closed.
    count: AtomicUsize,
    openings: AtomicU64,
}

/// The result of finding the log of a key.
#[derive(Debug)]
pub(super) enum KeyLookup<'a> {
    Open(LogGuard),
    /// Another thread opens or closes it.
    Busy(Arc<Transition>),
    /// This caller opens it.
    Claimed(Claim<'a>),
}

/// The right to open, or close, the log of a key. Dropping it leaves the key without a log.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    logs: &'a OpenLogs,
    pub(super) key: Arc<[u8]>,
    busy: Arc<Transition>,
}

impl OpenLogs {
    pub(super) fn new() -> Self {
        let hasher = RandomState::default();
        let shard = |_| PaddedShard(Mutex::new(HashMap::with_hasher(hasher.clone())));
        let shards = (0..SHARD_COUNT).map(shard).collect();
        Self { shards, hasher, count: AtomicUsize::new(0), openings: AtomicU64::new(0) }
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        // The table of a shard uses the other end of the hash.
        let number = (self.hasher.hash_one(key) >> 32) as usize % SHARD_COUNT;
        self.shards[number].0.lock()
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(SeqCst)
    }

    /// Returns the open log of a key, if `admits` allows it under the lock.
    #[inline]
    pub(super) fn get<E>(
        &self,
        key: &[u8],
        admits: impl FnOnce() -> Result<(), E>,
    ) -> Result<Option<LogGuard>, E> {
        let shard = self.shard(key);
        admits()?;
        Ok(match shard.get(key) {
            Some(ShardEntry::Open(open)) => self.reference(open),
            Some(ShardEntry::Busy(_)) | None => None,
        })
    }

    /// A reference to an open log; none to one that a caller closed and no caller uses, so that it
    /// is opened again.
    #[inline]
    fn reference(&self, open: &Arc<OpenLog>) -> Option<LogGuard> {
        if open.log.inner.status.is_closed() && Arc::strong_count(open) == 1 {
            return None;
        }
        let now = self.openings.load(Relaxed);
        if open.used.load(Relaxed) != now {
            open.used.store(now, Relaxed);
        }
        Some(LogGuard(Arc::clone(open)))
    }

    /// Returns the log of a key if it is open. Waits while it is being opened or closed.
    pub(super) fn open_log(&self, key: &[u8]) -> Option<LogGuard> {
        loop {
            let busy = match self.shard(key).get(key) {
                Some(ShardEntry::Open(open)) => return self.reference(open),
                Some(ShardEntry::Busy(busy)) => Arc::clone(busy),
                None => return None,
            };
            busy.wait();
        }
    }

    /// As [`OpenLogs::get`], and claims a key without a log.
    pub(super) fn get_or_claim<E>(
        &self,
        key: &[u8],
        admits: impl FnOnce() -> Result<(), E>,
    ) -> Result<KeyLookup<'_>, E> {
        let mut shard = self.shard(key);
        admits()?;
        match shard.get(key) {
            Some(ShardEntry::Busy(busy)) => return Ok(KeyLookup::Busy(Arc::clone(busy))),
            Some(ShardEntry::Open(open)) => {
                if let Some(guard) = self.reference(open) {
                    return Ok(KeyLookup::Open(guard));
                }
            }
            None => {}
        }
        let (key, busy) = (Arc::from(key), Arc::<Transition>::default());
        if shard.insert(Arc::clone(&key), ShardEntry::Busy(Arc::clone(&busy))).is_none() {
            self.count.fetch_add(1, SeqCst);
        }
        Ok(KeyLookup::Claimed(Claim { logs: self, key, busy }))
    }

    /// Claims an open log that has no references; the number of references if it has some.
    pub(super) fn claim_idle(
        &self,
        key: &[u8],
    ) -> Option<Result<(Claim<'_>, Arc<OpenLog>), usize>> {
        let mut shard = self.shard(key);
        let Some(ShardEntry::Open(open)) = shard.get(key) else { return None };
        let references = Arc::strong_count(open) - 1;
        if references > 0 {
            return Some(Err(references));
        }
        let (open, busy) = (Arc::clone(open), Arc::<Transition>::default());
        shard.insert(Arc::clone(&open.key), ShardEntry::Busy(Arc::clone(&busy)));
        Some(Ok((Claim { logs: self, key: Arc::clone(&open.key), busy }, open)))
    }

    /// The key of the idle log that was not used for the longest time.
    pub(super) fn least_recently_used(&self) -> Option<Arc<[u8]>> {
        let mut oldest: Option<(u64, Arc<[u8]>)> = None;
        for shard in &self.shards {
            for entry in shard.0.lock().values() {
                let ShardEntry::Open(open) = entry else { continue };
                let used = open.used.load(Relaxed);
                // By key where two are as old: the same calls close the same logs in each run.
                let older =
                    oldest.as_ref().is_none_or(|(oldest, key)| (used, &open.key) < (*oldest, key));
                if older && Arc::strong_count(open) == 1 {
                    oldest = Some((used, Arc::clone(&open.key)));
                }
            }
        }
        oldest.map(|(_, key)| key)
    }

    /// The keys of all logs, with the number of references to each; those being opened or closed
    /// count as in use.
    pub(super) fn references(&self) -> Vec<(Arc<[u8]>, usize)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.0.lock().iter().map(|(key, entry)| {
                let references = match entry {
                    ShardEntry::Open(open) => Arc::strong_count(open) - 1,
                    ShardEntry::Busy(_) => 1,
                };
                (Arc::clone(key), references)
            }));
        }
        all
    }

    /// Forgets the logs that are open: each is closed when its last guard is dropped. Waits for
    /// those that are being opened, closed or removed.
    pub(super) fn forget(&self) {
        for shard in &self.shards {
            let (mut open, mut busy) = (Vec::new(), Vec::new());
            {
                let mut shard = shard.0.lock();
                let before = shard.len();
                shard.retain(|_, entry| match entry {
                    ShardEntry::Open(log) => {
                        open.push(Arc::clone(log));
                        false
                    }
                    ShardEntry::Busy(other) => {
                        busy.push(Arc::clone(other));
                        true
                    }
                });
                self.count.fetch_sub(before - shard.len(), SeqCst);
            }
            // Without the lock: the last reference closes its log, and waits for the disk.
            drop(open);
            busy.iter().for_each(|busy| busy.wait());
        }
    }

    /// Open logs, and references to them.
    pub(super) fn statistics(&self) -> (usize, usize) {
        let (mut open, mut references) = (0, 0);
        for shard in &self.shards {
            for entry in shard.0.lock().values() {
                if let ShardEntry::Open(log) = entry {
                    open += 1;
                    references += Arc::strong_count(log) - 1;
                }
            }
        }
        (open, references)
    }
}

impl Claim<'_> {
    /// The log stays open as before, unless its caller has closed it: the next one opens it again.
    pub(super) fn keep_open(self, open: Arc<OpenLog>) {
        if open.log.inner.status.is_closed() {
            return;
        }
        self.logs.shard(&self.key).insert(Arc::clone(&self.key), ShardEntry::Open(open));
    }

    /// The log was opened: gives it to every caller that waits for the key.
    /// If `admits` refuses that under the lock, the log is closed when it is dropped.
    pub(super) fn opened<E>(
        self,
        log: ConsensusLog,
        admits: impl FnOnce() -> Result<(), E>,
    ) -> Result<LogGuard, E> {
        let used = AtomicU64::new(self.logs.openings.fetch_add(1, Relaxed) + 1);
        let key = Arc::clone(&self.key);
        let open = Arc::new(OpenLog { key, log, used, initialising: Mutex::new(()) });
        let guard = LogGuard(Arc::clone(&open));
        let mut shard = self.logs.shard(&self.key);
        admits()?;
        let before = shard.insert(Arc::clone(&self.key), ShardEntry::Open(open));
        debug_assert!(
            matches!(before, Some(ShardEntry::Busy(_))),
            "a key is opened without a claim"
        );
        Ok(guard)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut shard = self.logs.shard(&self.key);
        if matches!(shard.get(&self.key), Some(ShardEntry::Busy(busy)) if Arc::ptr_eq(busy, &self.busy))
        {
            shard.remove(&self.key);
            let before = self.logs.count.fetch_sub(1, SeqCst);
            debug_assert!(before > 0, "more logs were closed than opened");
        }
        drop(shard);
        *self.busy.over.lock() = true;
        self.busy.ended.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A log that is being opened, closed or removed uses the directory: a closed manager must
    /// not leave it to another one before.
    #[test]
    fn forgetting_waits_for_what_is_under_way() {
        let logs = OpenLogs::new();
        let found = logs.get_or_claim(b"a", || Ok::<_, Infallible>(())).unwrap();
        let KeyLookup::Claimed(claim) = found else { panic!("{found:?}") };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let forgetting = scope.spawn(|| {
                logs.forget();
                assert!(over.load(SeqCst));
            });
            // It returns whether a thread waits there.
            while !claim.busy.ended.notify_one() {
                assert!(!forgetting.is_finished(), "it did not wait");
                std::thread::yield_now();
            }
            over.store(true, SeqCst);
            drop(claim);
        });
        assert_eq!((logs.count(), logs.references().len()), (0, 0));
    }
}
