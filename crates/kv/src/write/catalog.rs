//! Creating and dropping keyspaces.

use std::sync::Arc;

use esker_log::Seq;
use esker_log::component::Purpose;

use crate::base::error::{Error, Result, check_name};
use crate::index::entry::Version;
use crate::index::keys::Keys;
use crate::record::{Change, Record};
use crate::state::handle::Keyspace;
use crate::state::keyspaces::{CATALOG_ID, DEFAULT_NAME, FIRST_ID, number};
use crate::state::writer::Writer;
use crate::write::batch::Batch;

impl Writer {
    /// Returns the keyspace of this name; creates it, durably, if there is none.
    pub(crate) fn create_keyspace(self: &Arc<Self>, name: &str) -> Result<Arc<Keys>> {
        let view = self.view();
        view.refuse_if_closing()?;
        check_name(name)?;
        let _catalog = self.lock_catalog();
        if let Some(keys) = view.keyspaces().find(name) {
            return Ok(keys);
        }
        // A keyspace of this name may have been created by a record that is lost.
        view.gap().refuse_key(CATALOG_ID, name.as_bytes(), u64::MAX)?;
        let catalog = self.handle(view.keyspaces().catalog());
        let id = self.unused_id(&catalog)?;
        let mut batch = Batch::new();
        batch.put(&catalog, name, id.to_le_bytes())?;
        batch.put(&catalog, "", id.checked_add(1).ok_or(Error::IndexFull)?.to_le_bytes())?;
        // Durable before it is used: its records must not outlive it.
        let created = self.write_batch(&batch)?.blocking_wait()?;
        view.gap().decide(id, b"", None, created.0);
        let keys = Arc::new(Keys::new(id, name));
        view.keyspaces().insert(Arc::clone(&keys));
        Ok(keys)
    }

    /// Returns the number for a new keyspace: no record names it, and none that was lost.
    fn unused_id(&self, catalog: &Keyspace) -> Result<u32> {
        let view = self.view();
        let next = match view.get(&catalog.keys, b"") {
            // The counter may be in a gap.
            Err(Error::Quarantined { .. }) => None,
            counter => counter?,
        };
        let next = match next.as_deref() {
            None => FIRST_ID,
            Some(value) => number(value).ok_or_else(|| {
                let counter = view.table().find(view.table().hash(CATALOG_ID, b""));
                let seq = Seq(counter.map_or(0, |counter| counter.version.seq));
                Error::CorruptedRecord { seq, what: "the counter of the catalog is invalid" }
            })?,
        };
        // Records may name a higher number, if a repair lost the one in the catalog.
        Ok(next.max(view.keyspaces().unused().ok_or(Error::IndexFull)?))
    }

    /// Drops a keyspace with all of its keys, durably.
    pub(crate) fn drop_keyspace(self: &Arc<Self>, name: &str) -> Result<()> {
        let view = self.view();
        view.refuse_if_closing()?;
        if name == DEFAULT_NAME {
            return Err(Error::DefaultKeyspace);
        }
        let _catalog = self.lock_catalog();
        let catalog = view.keyspaces().catalog();
        let Some(keys) = view.keyspaces().find(name) else {
            if view.gap().refuse_key(CATALOG_ID, name.as_bytes(), u64::MAX).is_ok() {
                return Err(Error::KeyspaceNotFound { name: name.into() });
            }
            // It may have been created by a record that is lost. From here on there is none.
            self.delete(catalog, name.as_bytes())?.0.blocking_wait()?;
            return Ok(());
        };
        let entry = view.key(catalog, name.as_bytes())?;
        let mut payload = Vec::new();
        let change = Change::Delete;
        Record { keyspace: catalog.id, key: entry.key, change }.encode(&mut payload);
        keys.put_in_order(view.table(), view.horizon());
        let ticket = self.log.component().append_locked(|log| {
            let _orders = view.table().all_orders();
            log.append(Purpose::Freeing, &payload, |place| {
                let (seq, position) = (place.seq.0, place.position.0);
                let version = Version { seq, deleted: true, position, len: 0 };
                view.gap().decide_key(catalog.id, entry.key, seq);
                self.set(catalog, entry, version, 0);
                // Its records are dead. Remove its entries, so that cleaning sees that.
                let each = |changed| self.count_garbage(changed);
                keys.delete_range(view.table(), b"", None, version, view.horizon(), each);
                keys.set_dropped();
            })
        })?;
        view.keyspaces().remove(name, ticket.seq());
        ticket.blocking_wait()?;
        view.remove_dropped();
        Ok(view.health().check_invariants()?)
    }
}
