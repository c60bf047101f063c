//! The keys of one keyspace: sorted, those that are not sorted yet, and their number.

use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::index::entry::{EntryId, Version};
use crate::index::sorted_keys::{self, SortedKeys};
use crate::index::table::{EntryChange, Removal, Table};

/// The number of waiting keys from which on a writer sorts them.
const WAITING_KEYS_MAX: usize = 32 << 10;
/// The number of deleted keys, and their share of all, from which on their entries are removed.
const DELETED_KEYS_MIN: usize = 4 << 10;
const DELETED_KEYS_SHARE: usize = 8;

/// The keys of one keyspace, as entries of the index, with its name and number.
#[derive(Debug, Default)]
pub(crate) struct KeyspaceKeys {
    pub(crate) id: u32,
    /// Empty until the catalog names it.
    name: OnceLock<String>,
    sorted: RwLock<SortedKeys>,
    /// Held from taking the waiting entries until they are sorted.
    sorting: Mutex<()>,
    /// Entries that are not sorted yet.
    waiting: Mutex<Vec<EntryId>>,
    waiting_len: AtomicUsize,
    /// Entries of deleted keys, each once.
    deleted: Mutex<Vec<EntryId>>,
    deleted_len: AtomicUsize,
    /// The entries of deleted keys that are left can be removed when the horizon is here.
    deleted_at: AtomicU64,
    count: AtomicI64,
    dropped: AtomicBool,
}

impl KeyspaceKeys {
    pub(crate) fn new(id: u32, name: &str) -> Self {
        let keys = Self { id, ..Self::default() };
        if !name.is_empty() {
            keys.set_name(name);
        }
        keys
    }

    pub(crate) fn name(&self) -> &str {
        self.name.get().map_or("", String::as_str)
    }

    /// Sets the name of a keyspace that has none.
    pub(crate) fn set_name(&self, name: &str) {
        let old = self.name.get_or_init(|| name.into());
        debug_assert_eq!(old, name, "the number of a keyspace has one name");
    }

    /// Creates a keyspace with these keys, none of which is deleted.
    pub(super) fn from_sorted(id: u32, sorted: SortedKeys, count: u64) -> Self {
        let (sorted, count) = (RwLock::new(sorted), AtomicI64::new(count as i64));
        Self { id, sorted, count, ..Self::default() }
    }

    /// The number of keys.
    pub(crate) fn count(&self) -> u64 {
        let count = self.count.load(Relaxed);
        debug_assert!(count >= 0, "a key is counted before it is deleted");
        count.max(0) as u64
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(SeqCst)
    }

    pub(crate) fn set_dropped(&self) {
        self.dropped.store(true, SeqCst);
    }

    /// Registers a change of [`Table::set`]. The caller still holds the write lock of the shard.
    #[inline]
    pub(crate) fn register(&self, table: &Table, change: EntryChange, new: Version) {
        let existed = change.old.is_some_and(|old| !old.deleted);
        if existed && new.deleted {
            let keys = self.count.fetch_sub(1, Relaxed);
            table.health().fail_unless(keys > 0, "a key is counted before it is deleted");
        } else if !existed && !new.deleted {
            self.count.fetch_add(1, Relaxed);
        }
        if change.old.is_none() {
            let mut waiting = self.waiting.lock();
            waiting.push(change.id);
            self.waiting_len.store(waiting.len(), Relaxed);
        }
        if change.list {
            let mut deleted = self.deleted.lock();
            deleted.push(change.id);
            self.deleted_len.store(deleted.len(), Relaxed);
        }
    }

    /// Whether enough keys wait to be added or removed. Called without locks.
    #[inline]
    pub(crate) fn wants_sorting(&self, horizon: u64) -> bool {
        self.waiting_len.load(Relaxed) >= WAITING_KEYS_MAX
            || self.wants_removal(horizon)
                && self.deleted_len.load(Relaxed) >= self.count() as usize / DELETED_KEYS_SHARE
    }

    /// Whether many deleted keys wait, and some of them can be removed.
    fn wants_removal(&self, horizon: u64) -> bool {
        self.deleted_len.load(Relaxed) >= DELETED_KEYS_MIN
            && horizon >= self.deleted_at.load(Relaxed)
    }

    /// Whether entries of deleted keys are left.
    pub(crate) fn has_deleted(&self) -> bool {
        self.deleted_len.load(Relaxed) > 0
    }

    /// Adds the waiting keys to the sorted ones, and removes deleted ones if there are many. The
    /// caller holds no lock. After it returns, every key is sorted whose writer had released its
    /// write lock before the call.
    pub(crate) fn sort_waiting(&self, table: &Table, horizon: u64) {
        let removes = self.wants_removal(horizon);
        self.sort_and_remove(table, horizon, removes);
    }

    /// Removes the entries of deleted keys, if some of them can be removed.
    pub(crate) fn free_deleted(&self, table: &Table, horizon: u64) {
        if self.has_deleted() && horizon >= self.deleted_at.load(Relaxed) {
            self.sort_and_remove(table, horizon, true);
        }
    }

    /// Adds the waiting keys to the sorted ones, and removes the entries of deleted keys.
    pub(crate) fn remove_deleted(&self, table: &Table, horizon: u64) {
        self.sort_and_remove(table, horizon, true);
    }

    fn sort_and_remove(&self, table: &Table, horizon: u64, removes: bool) {
        let sorting = self.sorting.lock();
        // Take the deleted ones first: an entry is added to `waiting` before it is deleted.
        let deleted = if removes {
            self.deleted_len.store(0, Relaxed);
            std::mem::take(&mut *self.deleted.lock())
        } else {
            Vec::new()
        };
        let mut waiting = std::mem::take(&mut *self.waiting.lock());
        self.waiting_len.store(0, Relaxed);
        if !waiting.is_empty() {
            sorted_keys::sort(table.arena(), &mut waiting);
            let are_new = self.sorted.write().insert(table.arena(), &waiting);
            table.health().fail_unless(are_new, "a key has one entry among the sorted ones");
        }
        if !deleted.is_empty() {
            self.remove(table, deleted, horizon);
        }
        drop(sorting);
    }

    /// Removes the entries of deleted keys, in steps, so that no scan waits long.
    fn remove(&self, table: &Table, deleted: Vec<EntryId>, horizon: u64) {
        let mut later = Vec::new();
        let mut key = Vec::new();
        for ids in deleted.chunks(64) {
            let mut sorted = self.sorted.write();
            for id in ids {
                match table.remove_deleted(*id, horizon) {
                    Removal::Removed => {
                        key.clear();
                        table.arena().copy_key(*id, &mut key);
                        let was_there = sorted.remove(table.arena(), *id, &key);
                        let invariant = "an entry that does not wait is sorted";
                        if table.health().ensure(was_there, invariant).is_ok() {
                            table.arena().free(*id);
                        }
                    }
                    Removal::Revived => {}
                    Removal::Later => later.push(*id),
                }
            }
        }
        // Not again before the first of them can be removed.
        let first = later.iter().map(|id| table.arena().version(*id).seq).min();
        let mut deleted = self.deleted.lock();
        deleted.extend(later);
        self.deleted_at.store(first.unwrap_or(0), Relaxed);
        self.deleted_len.store(deleted.len(), Relaxed);
    }

    /// Makes a delete the newest version of each key from `low` on and below `high`. The caller
    /// holds all write locks. Every key that has a record before this one is deleted. `each` gets
    /// what changed.
    pub(crate) fn delete_range(
        &self,
        table: &Table,
        low: &[u8],
        high: Option<&[u8]>,
        version: Version,
        horizon: u64,
        mut each: impl FnMut(EntryChange),
    ) {
        self.sort_waiting(table, horizon);
        let sorted = self.sorted.read();
        let mut cursor = sorted.seek(table.arena(), low);
        while let Some((id, next)) = sorted.next(cursor)
            && high.is_none_or(|high| table.arena().is_below(id, high))
        {
            if let Some(change) = table.delete_entry(id, version, horizon) {
                self.register(table, change, version);
                each(change);
            }
            cursor = next;
        }
    }

    /// Makes a delete the newest version of each key that has no record at or after `oldest`.
    pub(crate) fn delete_before(&self, table: &Table, oldest: u64, version: Version, horizon: u64) {
        self.sort_waiting(table, horizon);
        let sorted = self.sorted.read();
        let mut cursor = sorted.seek(table.arena(), b"");
        while let Some((id, next)) = sorted.next(cursor) {
            if table.newest(id).seq < oldest
                && let Some(change) = table.delete_entry(id, version, horizon)
            {
                self.register(table, change, version);
            }
            cursor = next;
        }
    }

    /// The sorted keys, for reading. While they are held, no entry of this keyspace is freed.
    pub(crate) fn sorted(&self) -> RwLockReadGuard<'_, SortedKeys> {
        self.sorted.read()
    }

    /// The bytes of memory of the sorted and the waiting keys.
    pub(crate) fn bytes(&self) -> u64 {
        self.sorted.read().bytes() + (self.waiting.lock().capacity() * 4) as u64
    }
}
