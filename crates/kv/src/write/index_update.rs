//! The effect of a write on the index, and the work that writes leave behind.

use crate::index::entry::{HashedKey, Version};
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::index::table::{EntryChange, IndexError};
use crate::state::store_writer::StoreWriter;

impl StoreWriter {
    /// Sets the newest version of a key, after its record has its place. The caller holds the order
    /// lock.
    ///
    /// The record cannot be taken back. So an index that does not take it fails the store, and the
    /// write returns that.
    #[inline]
    pub(super) fn set(
        &self,
        keys: &KeyspaceKeys,
        key: HashedKey<'_>,
        version: Version,
        cached: u64,
    ) {
        let state = self.state();
        match state.table().set(key, version, cached, state.horizon()) {
            Ok(change) => {
                self.count_garbage(change);
                keys.register(state.table(), change, version);
            }
            Err(IndexError::ArenaFull) => {
                state.health().fail("the index has room for a record that has its place");
            }
            // The index has failed the store.
            Err(IndexError::Broken(_)) => {}
        }
    }

    /// Counts the bytes of a version that was replaced.
    #[inline]
    pub(super) fn count_garbage(&self, change: EntryChange) {
        if let Some(bytes) = change.old.and_then(|old| self.state().live_bytes(change.id, old)) {
            self.cleaning().add_garbage(bytes);
        }
    }

    /// Whether the index has room for these keys. It keeps more room than all writers together may
    /// take after this.
    #[inline]
    pub(super) fn has_room<'a>(&self, keys: impl Iterator<Item = HashedKey<'a>>) -> bool {
        self.state().table().has_room(keys)
    }

    /// Frees the entries of deleted keys that no reader needs, for a write that found no room.
    #[cold]
    pub(super) fn free_entries(&self) {
        let state = self.state();
        let horizon = state.horizon();
        for keys in state.keyspaces().all() {
            keys.free_deleted(state.table(), horizon);
        }
        state.remove_dropped();
    }

    /// Orders keys and limits the history, if it is time, without any lock.
    #[inline]
    pub(super) fn after_write(&self, keys: &KeyspaceKeys) {
        let state = self.state();
        let horizon = state.horizon();
        if keys.wants_sorting(horizon) {
            keys.sort_waiting(state.table(), horizon);
        }
        if state.is_history_full() {
            state.limit_history();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use crate::{Batch, Error, ReadError, Store, StoreError};

    fn assert_failed<T: Debug>(outcome: Result<T, impl Into<Error>>) {
        let invariant = "the index has room for a record that has its place";
        match outcome.map_err(Into::into) {
            Err(Error::Store(StoreError::Internal { invariant: broken })) => {
                assert_eq!(broken, invariant);
            }
            other => panic!("{other:?}"),
        }
    }

    /// Opens a store with a key, whose index takes no other one, although it reports room.
    fn full_store(dir: &std::path::Path) -> Store {
        let store = Store::open(dir).unwrap();
        let keys = store.keyspace();
        keys.put("old", vec![1; 2 << 20]).unwrap().blocking_wait().unwrap();
        keys.reader.state.table().arena().exhaust();
        store
    }

    /// Bug: a log line, and the write was acknowledged. Then a checkpoint or a pass of cleaning
    /// dropped the record, because the index did not name it.
    #[test]
    fn a_record_that_the_index_does_not_take_fails_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("store");
        let store = full_store(&dir);
        let keys = store.keyspace();
        keys.reader.state.health().never_panic();
        keys.put("old", "2").unwrap().blocking_wait().unwrap();
        assert_failed(keys.put("new", "3"));

        let mut batch = Batch::new();
        batch.put(&keys, "old", "4").unwrap();
        assert_failed(store.write(&batch));
        assert_failed(keys.put("old", "4"));
        assert_failed(keys.delete("old"));
        assert_failed(keys.delete_range(..));
        assert_failed(futures_util::FutureExt::now_or_never(keys.put_async("old", "4")).unwrap());
        assert_failed(keys.get("old"));
        assert_failed(keys.contains_key("new"));
        assert_failed(keys.scan(..));
        assert_failed(store.snapshot());
        assert_failed(store.barrier());
        assert_failed(store.watch(0));
        assert_failed(store.create_keyspace("other"));
        assert_failed(store.create_keyspace("default"));
        assert_failed(store.drop_keyspace("other"));
        assert_failed(store.compact());
        assert_failed(store.checkpoint());
        assert_failed(store.backup(dir.with_extension("copy")));
        assert_failed(store.close());
        assert!(matches!(keys.get("old"), Err(ReadError::Store(StoreError::Closed))));
        drop((keys, store));

        // The log has the record, and the index of the next opening, too.
        let store = Store::open(&dir).unwrap();
        let keys = store.keyspace();
        assert_eq!(keys.get("old").unwrap().unwrap(), "2");
        assert_eq!(keys.get("new").unwrap().unwrap(), "3");
        assert_eq!((keys.len(), store.stats().checkpoint_bytes), (2, 0));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_broken_invariant_panics_in_debug_builds_and_fails_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let store = full_store(&dir.path().join("store"));
        let keys = store.keyspace();
        assert!(catch_unwind(AssertUnwindSafe(|| keys.put("new", "3"))).is_err());
        assert_failed(keys.get("old"));
        assert_failed(keys.put("old", "4"));
        assert_failed(store.close());
    }
}
