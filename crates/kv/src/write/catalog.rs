//! Creating and dropping keyspaces.

use std::sync::Arc;

use esker_log::Seq;
use esker_log::component::Purpose;

use crate::base::corrupted_record::CorruptedRecord;
use crate::base::operation_errors::{KeyspaceError, ReadError, WriteError};
use crate::base::store_error::StoreError;
use crate::health::BrokenInvariant;
use crate::index::entry::Version;
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::limits::NAME_LIMIT;
use crate::record::{Change, Record};
use crate::state::handle::Keyspace;
use crate::state::keyspaces::{CATALOG_ID, DEFAULT_NAME, FIRST_ID, number};
use crate::state::store_writer::StoreWriter;
use crate::write::batch::Batch;

impl StoreWriter {
    /// Returns the keyspace of this name; creates it, durably, if there is none.
    pub(crate) fn create_keyspace(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Arc<KeyspaceKeys>, KeyspaceError> {
        let state = self.state();
        state.refuse_if_closing()?;
        if let Some(size) = invalid_size(name) {
            return Err(KeyspaceError::InvalidName { size });
        }
        let _catalog = self.lock_catalog();
        if let Some(keys) = state.keyspaces().find(name) {
            return Ok(keys);
        }
        // A keyspace of this name may have been created by a record that is lost.
        let known = state.gap().refuse_key(CATALOG_ID, name.as_bytes(), u64::MAX);
        known.map_err(StoreError::Quarantined)?;
        let catalog = self.handle(state.keyspaces().catalog());
        let id = self.unused_id(&catalog)?;
        let mut batch = Batch::new();
        let next = id.checked_add(1).ok_or(KeyspaceError::IndexFull)?;
        for (key, id) in [(name, id), ("", next)] {
            let added = batch.put(&catalog, key, id.to_le_bytes());
            added.map_err(|_| self.broken_catalog())?;
        }
        // Durable before it is used: its records must not outlive it.
        let created = self.write_batch(&batch).map_err(|error| match error {
            WriteError::IndexFull => KeyspaceError::IndexFull,
            WriteError::Store(error) => error.into(),
            _ => self.broken_catalog().into(),
        })?;
        let created = created.blocking_wait()?;
        state.gap().decide(id, b"", None, created.0);
        let keys = Arc::new(KeyspaceKeys::new(id, name));
        state.keyspaces().insert(Arc::clone(&keys));
        Ok(keys)
    }

    /// Returns the number for a new keyspace: no record names it, and none that was lost.
    fn unused_id(&self, catalog: &Keyspace) -> Result<u32, KeyspaceError> {
        let state = self.state();
        let next = match state.get(&catalog.reader.keys, b"") {
            Ok(counter) => counter,
            // The counter may be in a gap.
            Err(ReadError::Store(StoreError::Quarantined(_))) => None,
            Err(ReadError::Trimmed(trimmed)) => {
                return Err(StoreError::Log(esker_log::Error::Trimmed(trimmed)).into());
            }
            Err(ReadError::Store(error)) => return Err(error.into()),
            Err(_) => return Err(self.broken_catalog().into()),
        };
        let next = match next.as_deref() {
            None => FIRST_ID,
            Some(value) => number(value).ok_or_else(|| {
                let counter = state.table().find(state.table().hash(CATALOG_ID, b""));
                let seq = Seq(counter.map_or(0, |counter| counter.version.seq));
                CorruptedRecord { seq, what: "the counter of the catalog is invalid" }
            })?,
        };
        // Records may name a higher number, if a repair lost the one in the catalog.
        Ok(next.max(state.keyspaces().unused().ok_or(KeyspaceError::IndexFull)?))
    }

    /// Fails the store for an error that no read or write of the catalog can have.
    #[cold]
    fn broken_catalog(&self) -> BrokenInvariant {
        let health = self.state().health();
        health.fail("the catalog is never dropped, and its keys and values are within the limits")
    }

    /// Drops a keyspace with all of its keys, durably.
    pub(crate) fn drop_keyspace(self: &Arc<Self>, name: &str) -> Result<(), KeyspaceError> {
        let state = self.state();
        state.refuse_if_closing()?;
        if name == DEFAULT_NAME {
            return Err(KeyspaceError::DefaultKeyspace);
        }
        let not_found = || KeyspaceError::KeyspaceNotFound { name: name.into() };
        if invalid_size(name).is_some() {
            return Err(not_found());
        }
        let _catalog = self.lock_catalog();
        let catalog = state.keyspaces().catalog();
        let Some(keys) = state.keyspaces().find(name) else {
            if state.gap().refuse_key(CATALOG_ID, name.as_bytes(), u64::MAX).is_ok() {
                return Err(not_found());
            }
            // It may have been created by a record that is lost. From here on there is none.
            let deleted = self.delete(catalog, name.as_bytes()).map_err(|error| match error {
                WriteError::Store(error) => error.into(),
                _ => KeyspaceError::from(self.broken_catalog()),
            })?;
            deleted.blocking_wait()?;
            return Ok(());
        };
        let entry = state.table().hash(CATALOG_ID, name.as_bytes());
        let mut payload = Vec::new();
        let change = Change::Delete;
        Record { keyspace: catalog.id, key: entry.key, change }.encode(&mut payload);
        keys.sort_waiting(state.table(), state.horizon());
        let ticket = self.log.component().append_locked(|log| {
            let _write_locks = state.table().lock_all_writes();
            log.append(Purpose::Freeing, &payload, |place| {
                let (seq, offset) = (place.seq.0, place.position.0);
                let version = Version { seq, deleted: true, offset, len: 0 };
                state.gap().decide_key(catalog.id, entry.key, seq);
                self.set(catalog, entry, version, 0);
                // Its records are dead. Remove its entries, so that cleaning sees that.
                let each = |changed| self.count_garbage(changed);
                keys.delete_range(state.table(), b"", None, version, state.horizon(), each);
                keys.set_dropped();
            })
        })?;
        state.keyspaces().remove(name, ticket.seq());
        ticket.blocking_wait()?;
        state.remove_dropped();
        Ok(state.health().check_invariants()?)
    }
}

/// The length of a name that no keyspace can have.
fn invalid_size(name: &str) -> Option<usize> {
    Some(name.len()).filter(|size| !(1..=NAME_LIMIT).contains(size))
}
