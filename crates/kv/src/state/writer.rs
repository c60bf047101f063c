//! The state of an open store.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use esker_log::{Attempt, Log, Place, Refused};
use parking_lot::Mutex;

use crate::base::error::{Error, Result};
use crate::base::options::Options;
use crate::base::ticket::Ticket;
use crate::index::arena::{HashedKey, Version};
use crate::index::keys::Keys;
use crate::index::table::EntryChange;
use crate::state::request::Request;
use crate::state::throttle::Throttle;
use crate::state::view::View;

/// Segments beyond twice the live bytes from which on writers wait for cleaning.
const BEHIND_SEGMENTS: u64 = 4;

pub(crate) struct Writer {
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) log: Log,
    pub(crate) view: Arc<View>,
    /// Held while keyspaces are created or dropped.
    pub(crate) catalog_lock: Mutex<()>,
    pub(crate) cleaning: Cleaning,
    /// The last checkpoint.
    pub(crate) checkpoint: Mutex<LastCheckpoint>,
    /// Records that opening applied after it loaded a checkpoint, or all of them.
    pub(crate) replayed: u64,
}

impl std::ops::Deref for Writer {
    type Target = View;

    #[inline]
    fn deref(&self) -> &View {
        &self.view
    }
}

/// The last checkpoint, as a store remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LastCheckpoint {
    /// The position of the log at its replay point.
    pub(crate) position: u64,
    /// Its size in bytes.
    pub(crate) bytes: u64,
}

/// The state of cleaning.
#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    /// Held during a pass.
    pub(crate) pass: Mutex<()>,
    /// What was reclaimed since the store was opened.
    pub(crate) done: Mutex<esker_log::reclaim::Reclaimed>,
    /// The background thread, while it runs.
    pub(crate) thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    /// Passes in the background.
    pub(crate) request: Request,
    /// Bytes of records that were replaced since the store was opened.
    pub(crate) garbage: AtomicU64,
    /// A write found no space since the last pass began.
    pub(crate) full_disk: AtomicBool,
    /// [`Cleaning::garbage`], when a pass for such a write last freed nothing.
    pub(crate) fruitless_at: Mutex<Option<u64>>,
    /// The position of the log, and the replaced bytes, when a pass was last considered.
    pub(crate) considered: AtomicU64,
    /// The position of the log when a pass was last started by a write, durable or not.
    pub(crate) reached: AtomicU64,
    /// What was live when a pass last looked.
    pub(crate) live: Mutex<Option<LiveBytes>>,
    pub(crate) throttle: Throttle,
}

impl Cleaning {
    /// Blocks a put or a batch for a short time while cleaning is behind.
    #[inline]
    pub(crate) fn pace_writer(&self) {
        if self.throttle.is_closed() {
            self.throttle.blocking_wait();
        }
    }
}

/// The live bytes of a store at some moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveBytes {
    pub(crate) bytes: u64,
    /// The position of the log, and [`Cleaning::garbage`], at that moment.
    pub(crate) position: u64,
    pub(crate) garbage: u64,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("dir", &self.dir)
            .field("durable", &self.log.durable())
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Sets the newest version of a key, after its record has its place. The caller holds the order
    /// lock.
    #[inline]
    pub(crate) fn set(&self, keys: &Keys, key: HashedKey<'_>, version: Version, cached: u64) {
        match self.table.set(key, version, cached, self.horizon()) {
            Ok(changed) => {
                self.count_garbage(changed);
                keys.changed(changed, version);
            }
            // Unreachable: `check_room` keeps more room than all writers together may take.
            Err(_) => tracing::error!(seq = version.seq, "the index has no room for a record"),
        }
    }

    /// Counts the bytes of a version that was replaced.
    #[inline]
    pub(crate) fn count_garbage(&self, changed: EntryChange) {
        if let Some(bytes) = changed.old.and_then(|old| self.live_bytes(changed.id, old)) {
            self.cleaning.garbage.fetch_add(bytes, Relaxed);
        }
    }

    /// Refuses writes of new keys that the index has no room for.
    #[inline]
    pub(crate) fn check_room<'a>(&self, keys: impl Iterator<Item = HashedKey<'a>>) -> Result<()> {
        if self.table.has_room(keys) { Ok(()) } else { Err(Error::IndexFull) }
    }

    /// Frees the entries of deleted keys that no reader needs, for a write that found no room.
    #[cold]
    pub(crate) fn free_entries(&self) {
        let horizon = self.horizon();
        for keys in self.keyspaces.all() {
            keys.free_deleted(&self.table, horizon);
        }
        self.remove_dropped();
    }

    /// Appends one record and makes it the newest version of its key, before it can become durable.
    /// So a `get` after a watch delivered the record returns this version or a later one. `None`
    /// for a delete of a key that does not exist, which appends nothing.
    ///
    /// Inlined: with a call, a put takes a tenth longer.
    #[inline(always)]
    pub(crate) fn attempt_one(
        &self,
        log: &Attempt<'_>,
        write: &OneWrite<'_>,
    ) -> std::result::Result<Result<Option<Ticket>>, Refused> {
        let OneWrite { keys, key, payload, cached, value_len, deletes } = *write;
        let _order = self.table.order(key.shard);
        if keys.is_dropped() {
            return Ok(Err(Error::KeyspaceDropped { name: keys.name().into() }));
        }
        if !deletes && let Err(error) = self.check_room(std::iter::once(key)) {
            return Ok(Err(error));
        }
        let exists = || self.table.find(key).is_some_and(|current| !current.version.deleted);
        let mut has_entry = true;
        if deletes && !exists() {
            if self.gap.refuse_key(key.keyspace, key.key, u64::MAX).is_ok() {
                return Ok(Ok(None));
            }
            // The key may exist without one: records were quarantined.
            has_entry = false;
        }
        self.table.prefetch_entry(key);
        let placed = |place: Place| {
            let (seq, position) = (place.seq.0, place.position.0);
            if deletes {
                // First: a reader finds the key's entry, or that it was deleted.
                self.gap.decide_key(key.keyspace, key.key, seq);
            }
            if has_entry {
                let version = Version { seq, deleted: deletes, position, len: value_len };
                self.set(keys, key, version, cached);
            }
        };
        let ticket = if deletes {
            log.append_freeing(payload, placed)?
        } else {
            log.append(payload, placed)?
        };
        Ok(Ok(Some(Ticket(ticket))))
    }

    /// Work that writers do after a write, without any lock.
    #[inline]
    pub(crate) fn after_write(&self, keys: &Keys) {
        let horizon = self.horizon();
        if keys.wants_ordering(horizon) {
            keys.put_in_order(&self.table, horizon);
        }
        if self.is_history_full() {
            self.limit_history();
        }
    }

    /// Whether cleaning runs, and more space is used than twice the live bytes and four segments.
    pub(crate) fn is_behind(&self) -> bool {
        let live = *self.cleaning.live.lock();
        let Some(live) = live.filter(|_| self.cleaning.request.is_made()) else { return false };
        let log = self.log.metadata();
        let put = log.position.0.saturating_sub(live.position);
        let replaced = self.cleaning.garbage.load(Relaxed).saturating_sub(live.garbage);
        let live = (live.bytes + put).saturating_sub(replaced);
        log.disk_bytes > 2 * live + BEHIND_SEGMENTS * u64::from(self.options.segment_size)
    }
}

/// A write of one key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneWrite<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) key: HashedKey<'a>,
    pub(crate) payload: &'a [u8],
    pub(crate) cached: u64,
    pub(crate) value_len: u32,
    /// A delete: only of a key that exists. It may use the reserve of the log.
    pub(crate) deletes: bool,
}

impl<'a> OneWrite<'a> {
    #[inline]
    pub(crate) fn put(
        keys: &'a Keys,
        key: HashedKey<'a>,
        payload: &'a [u8],
        cached: u64,
        value_len: usize,
    ) -> Self {
        Self { keys, key, payload, cached, value_len: value_len as u32, deletes: false }
    }

    pub(crate) fn delete(keys: &'a Keys, key: HashedKey<'a>, payload: &'a [u8]) -> Self {
        Self { keys, key, payload, cached: 0, value_len: 0, deletes: true }
    }
}
