//! Finds the entry of a key by its hash, and keeps the writers of a key in turn.
//!
//! The keys are spread over shards by their hash. A shard has two locks:
//!
//! - *The write lock* is held by a writer from before its record gets its place in the log until
//!   the index names it. So the versions of a key follow each other as its records do. It is never
//!   held during I/O, and no reader takes it.
//! - *The table lock* is held for one lookup or change, for a fraction of a microsecond.
//!
//! Several write locks are taken in the order of the shards, before any table lock. One table lock
//! is held at a time.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::health::{BrokenInvariant, Health};
use crate::index::arena::Arena;
use crate::index::entry::{EntryId, HashedKey, SHARD_COUNT, Version};
use crate::index::history::History;
use crate::index::slots::Slots;

pub(crate) struct Table {
    arena: Arena,
    shards: Box<[Shard]>,
    hasher: foldhash::fast::RandomState,
    /// The number of replaced versions that are kept.
    kept: AtomicI64,
    /// No reader reads versions above this number before it has moved past what replaces them.
    visible: AtomicU64,
}

#[derive(Default)]
#[repr(align(64))]
struct Shard {
    write_lock: Mutex<()>,
    table: RwLock<ShardEntries>,
}

#[derive(Default)]
struct ShardEntries {
    ids: Slots,
    history: History,
}

/// The newest version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CurrentVersion {
    pub(crate) id: EntryId,
    pub(crate) version: Version,
    /// The place of the value in the cache; 0 if it is not there.
    pub(crate) cached: u64,
}

/// The effect of a change on the entry of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryChange {
    pub(crate) id: EntryId,
    /// The version that was replaced; `None` for a new entry.
    pub(crate) old: Option<Version>,
    /// Whether the entry must be added to the list of deleted ones.
    pub(crate) list: bool,
}

/// The reason why the index does not have a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexError {
    /// The arena has no room for another entry.
    ArenaFull,
    Broken(BrokenInvariant),
}

impl From<BrokenInvariant> for IndexError {
    fn from(broken: BrokenInvariant) -> Self {
        Self::Broken(broken)
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("arena", &self.arena).finish_non_exhaustive()
    }
}

impl Table {
    /// A table that counts as full when its entries take this many bytes. It fails the store if it
    /// finds an impossible state.
    pub(crate) fn new(limit: u64, health: Arc<Health>) -> Self {
        Self {
            arena: Arena::new(limit, health),
            shards: std::iter::repeat_with(Shard::default).take(SHARD_COUNT).collect(),
            hasher: foldhash::fast::RandomState::default(),
            kept: AtomicI64::new(0),
            visible: AtomicU64::new(u64::MAX),
        }
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(crate) fn health(&self) -> &Arc<Health> {
        self.arena.health()
    }

    #[inline]
    pub(crate) fn hash<'a>(&self, keyspace: u32, key: &'a [u8]) -> HashedKey<'a> {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.write_u32(keyspace);
        let hash = hasher.finish();
        HashedKey { keyspace, key, shard: (hash >> 32) as u8, hash: hash as u32 }
    }

    /// Sets the slots of a shard that has none.
    pub(super) fn fill(&self, shard: usize, ids: Slots) {
        let mut entries = self.shards[shard].table.write();
        debug_assert_eq!(entries.ids.len(), 0, "the slots of a shard are set once");
        entries.ids = ids;
    }

    /// The newest version of an entry. The caller keeps the entry from being freed.
    pub(crate) fn newest(&self, id: EntryId) -> Version {
        let (shard, _) = self.arena.hash(id);
        let _entries = self.shards[usize::from(shard)].table.read();
        self.arena.version(id)
    }

    /// Takes the write lock of one shard.
    #[inline]
    pub(crate) fn lock_writes(&self, shard: u8) -> MutexGuard<'_, ()> {
        self.shards[usize::from(shard)].write_lock.lock()
    }

    /// Takes the write locks of these shards, which must be sorted and without repetitions.
    pub(crate) fn lock_writes_of(&self, shards: &[u8]) -> Vec<MutexGuard<'_, ()>> {
        debug_assert!(shards.is_sorted_by(|a, b| a < b), "sorted, so that writers do not deadlock");
        shards.iter().map(|shard| self.lock_writes(*shard)).collect()
    }

    /// Takes all write locks: no record gets its place meanwhile.
    pub(crate) fn lock_all_writes(&self) -> Vec<MutexGuard<'_, ()>> {
        self.shards.iter().map(|shard| shard.write_lock.lock()).collect()
    }

    /// Waits until every writer that has a write lock has released it: then the index names each
    /// record that has its place already.
    pub(crate) fn await_writers(&self) {
        for shard in &self.shards {
            drop(shard.write_lock.lock());
        }
    }

    #[inline]
    pub(crate) fn find(&self, key: HashedKey<'_>) -> Option<CurrentVersion> {
        let shard = &self.shards[usize::from(key.shard)];
        let entries = shard.table.read();
        let id = entries.ids.find(key.hash, |id| self.has_key(id, key))?;
        Some(CurrentVersion { id, version: self.arena.version(id), cached: self.arena.cached(id) })
    }

    /// Requests the memory of the slot of a key, to be used soon.
    #[inline]
    pub(crate) fn prefetch_slot(&self, key: HashedKey<'_>) {
        self.shards[usize::from(key.shard)].table.read().ids.prefetch(key.hash);
    }

    /// Requests the memory of the entry of a key, to be used soon.
    #[inline]
    pub(crate) fn prefetch_entry(&self, key: HashedKey<'_>) {
        let entries = self.shards[usize::from(key.shard)].table.read();
        if let Some(id) = entries.ids.find(key.hash, |_| true) {
            self.arena.prefetch(id);
        }
    }

    #[inline]
    fn has_key(&self, id: EntryId, key: HashedKey<'_>) -> bool {
        self.arena.has_key(id, key.keyspace, key.key)
    }

    /// Sets the newest version of a key. The caller holds the write lock of the key's shard, so the
    /// version is newer than any other. No reader reads before `horizon`.
    pub(crate) fn set(
        &self,
        key: HashedKey<'_>,
        version: Version,
        cached: u64,
        horizon: u64,
    ) -> Result<EntryChange, IndexError> {
        let arena = &self.arena;
        let mut entries = self.shards[usize::from(key.shard)].table.write();
        let ShardEntries { ids, history } = &mut *entries;
        if let Some(id) = ids.find(key.hash, |id| self.has_key(id, key)) {
            let old = arena.version(id);
            let is_newer = old.seq < version.seq;
            self.health().ensure(is_newer, "a version is newer than those before it")?;
            arena.set(id, version, cached);
            self.keep(history, id, old, version.seq, horizon);
            let list = version.deleted && !arena.is_listed(id);
            if list {
                arena.set_listed(id, true);
            }
            return Ok(EntryChange { id, old: Some(old), list });
        }
        let id = arena.allocate(key, version, cached).ok_or(IndexError::ArenaFull)?;
        if version.deleted {
            arena.set_listed(id, true);
        }
        ids.insert(key.hash, id);
        Ok(EntryChange { id, old: None, list: version.deleted })
    }

    /// Sets the newest version of an entry to a delete. `None` if the key is deleted already, or a
    /// newer record put it. The caller holds the write lock, and the sorted keys of the keyspace.
    pub(crate) fn delete_entry(
        &self,
        id: EntryId,
        version: Version,
        horizon: u64,
    ) -> Option<EntryChange> {
        let (shard, _) = self.arena.hash(id);
        let mut entries = self.shards[usize::from(shard)].table.write();
        let old = self.arena.version(id);
        if old.deleted || old.seq >= version.seq {
            return None;
        }
        self.arena.set(id, version, 0);
        self.keep(&mut entries.history, id, old, version.seq, horizon);
        let list = !self.arena.is_listed(id);
        if list {
            self.arena.set_listed(id, true);
        }
        Some(EntryChange { id, old: Some(old), list })
    }

    /// Replaces a version by its copy, if it is still the newest. The caller holds the write lock.
    pub(crate) fn set_moved(
        &self,
        key: HashedKey<'_>,
        from: u64,
        to: Version,
        horizon: u64,
    ) -> bool {
        let mut entries = self.shards[usize::from(key.shard)].table.write();
        let ShardEntries { ids, history } = &mut *entries;
        let Some(id) = ids.find(key.hash, |id| self.has_key(id, key)) else {
            return false;
        };
        let old = self.arena.version(id);
        if old.seq != from || old.deleted {
            return false;
        }
        self.arena.set(id, to, self.arena.cached(id));
        self.keep(history, id, old, to.seq, horizon);
        true
    }

    /// Stops keeping versions above this number that are replaced: readers will not see them before
    /// they see what replaced them.
    pub(crate) fn set_visible(&self, seq: u64) {
        self.visible.store(seq, Relaxed);
    }

    /// Keeps a version that the record `by` replaced, for readers that may read it.
    #[inline]
    fn keep(&self, history: &mut History, id: EntryId, old: Version, by: u64, horizon: u64) {
        if old.seq <= self.visible.load(Relaxed) {
            self.kept.fetch_add(history.keep(id, old, by, horizon), Relaxed);
        }
    }

    /// Stores where a value is cached, if this version is still the newest.
    pub(crate) fn set_cached(&self, id: EntryId, seq: u64, cached: u64) {
        let (shard, _) = self.arena.hash(id);
        // For readers the lock is enough: a version changes only under the write lock, and two
        // readers that cache the same value may store either place.
        let entries = self.shards[usize::from(shard)].table.read();
        if self.arena.version(id).seq == seq {
            self.arena.set_cached(id, cached);
        }
        drop(entries);
    }

    /// The version of an entry at a point in time, which is at or after the horizon; `None` when
    /// the key did not exist. The caller keeps the entry from being freed: it holds the sorted keys
    /// of its keyspace.
    pub(crate) fn at(&self, id: EntryId, seq: u64) -> Option<CurrentVersion> {
        let (shard, _) = self.arena.hash(id);
        self.version_at(&self.shards[usize::from(shard)].table.read(), id, seq)
    }

    /// As [`Table::at`], under the lock of the table that the entry is in.
    #[inline]
    fn version_at(&self, entries: &ShardEntries, id: EntryId, seq: u64) -> Option<CurrentVersion> {
        let mut current =
            CurrentVersion { id, version: self.arena.version(id), cached: self.arena.cached(id) };
        if current.version.seq > seq {
            current.version = entries.history.at(id, seq)?;
            current.cached = 0;
        }
        (!current.version.deleted).then_some(current)
    }

    /// The version of a key at a point in time. See [`Table::at`].
    pub(crate) fn find_at(&self, key: HashedKey<'_>, seq: u64) -> Option<CurrentVersion> {
        let entries = self.shards[usize::from(key.shard)].table.read();
        let id = entries.ids.find(key.hash, |id| self.has_key(id, key))?;
        self.version_at(&entries, id, seq)
    }

    /// The version that replaced this one of an entry, while this one is kept. `None` too for the
    /// newest version.
    pub(crate) fn successor(&self, id: EntryId, seq: u64) -> Option<Version> {
        let (shard, _) = self.arena.hash(id);
        let entries = self.shards[usize::from(shard)].table.read();
        let (by, next) = entries.history.successor(id, seq)?;
        next.or_else(|| Some(self.arena.version(id)).filter(|newest| newest.seq == by))
    }

    /// Removes the entry of a deleted key, if no reader at or after `horizon` may read a version of
    /// it. Otherwise says why not. The caller holds the sorted keys of the keyspace for writing,
    /// and frees the entry after it removed it there.
    pub(crate) fn remove_deleted(&self, id: EntryId, horizon: u64) -> Removal {
        let arena = &self.arena;
        let (shard, hash) = arena.hash(id);
        let mut entries = self.shards[usize::from(shard)].table.write();
        let version = arena.version(id);
        if !version.deleted {
            arena.set_listed(id, false);
            return Removal::Revived;
        }
        // Every version that it replaced was replaced before that.
        if version.seq > horizon {
            return Removal::Later;
        }
        let was_there = entries.ids.remove(hash, id);
        match self.health().ensure(was_there, "the entry of a deleted key is in its table") {
            Ok(()) => Removal::Removed,
            // It is not freed: another key would get it while the sorted keys name it.
            Err(_) => Removal::Later,
        }
    }

    /// Whether new entries for these keys fit, where there are none. Always, while there is room
    /// that was never used; otherwise in freed entries.
    #[inline]
    pub(crate) fn has_room<'a>(&self, keys: impl Iterator<Item = HashedKey<'a>>) -> bool {
        !self.arena.is_nearly_full() || self.has_free(keys)
    }

    #[cold]
    fn has_free<'a>(&self, keys: impl Iterator<Item = HashedKey<'a>>) -> bool {
        let mut new: HashMap<usize, usize> = HashMap::new();
        for key in keys.filter(|key| self.find(*key).is_none()) {
            *new.entry(key.key.len().div_ceil(8) * 8).or_default() += 1;
        }
        new.iter().all(|(key_len, keys)| self.arena.has_free(*key_len, *keys))
    }

    /// The number of replaced versions that are kept.
    pub(crate) fn kept(&self) -> u64 {
        u64::try_from(self.kept.load(Relaxed)).unwrap_or_else(|_| {
            self.health().fail("a replaced version is counted before it is dropped");
            0
        })
    }

    /// Drops the replaced versions that no reader at or after `horizon` reads.
    pub(crate) fn trim_history(&self, horizon: u64) {
        for shard in &self.shards {
            let dropped = shard.table.write().history.trim(horizon);
            self.kept.fetch_sub(dropped, Relaxed);
        }
    }

    /// The bytes of memory of the entries and the tables.
    pub(crate) fn bytes(&self) -> u64 {
        let table = |shard: &Shard| shard.table.read().ids.bytes();
        self.arena.bytes() + self.shards.iter().map(table).sum::<u64>()
    }
}

/// The outcome of removing the entry of a deleted key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// No table has it any more.
    Removed,
    /// The key was put again.
    Revived,
    /// A reader may still need it.
    Later,
}
