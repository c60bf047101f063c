//! Creating and dropping keyspaces.

use std::sync::Arc;

use crate::base::error::{Error, Result, check_name, refuse_if_forked};
use crate::index::arena::Version;
use crate::index::keys::Keys;
use crate::record::{Change, Record};
use crate::state::keyspaces::{CATALOG_ID, DEFAULT_NAME, FIRST_ID, number};
use crate::state::writer::Writer;
use crate::write::batch::Batch;

impl Writer {
    /// Returns the keyspace of this name; creates it, durably, if there is none.
    pub(crate) fn create_keyspace(self: &Arc<Self>, name: &str) -> Result<Arc<Keys>> {
        refuse_if_forked()?;
        check_name(name)?;
        let _catalog = self.catalog_lock.lock();
        if let Some(keys) = self.keyspaces.find(name) {
            return Ok(keys);
        }
        // A keyspace of this name may have been created by a record that is lost.
        self.gap.refuse_key(CATALOG_ID, name.as_bytes(), u64::MAX)?;
        let catalog = self.handle(&self.keyspaces.catalog);
        // The counter may be in a gap.
        let next = match self.get(&catalog.keys, b"") {
            Err(Error::Quarantined { .. }) => None,
            found => found?.as_deref().and_then(number),
        };
        let next = next.unwrap_or(FIRST_ID);
        // Records may name a higher number, if a repair lost the one in the catalog.
        let id = next.max(self.keyspaces.unused().ok_or(Error::IndexFull)?);
        let mut batch = Batch::new();
        batch.put(&catalog, name, id.to_le_bytes())?;
        batch.put(&catalog, "", id.checked_add(1).ok_or(Error::IndexFull)?.to_le_bytes())?;
        // Durable before it is used: its records must not outlive it.
        let created = self.write_batch(&batch)?.blocking_wait()?;
        self.gap.decide(id, b"", None, created.0);
        let keys = Arc::new(Keys::new(id, name));
        self.keyspaces.insert(Arc::clone(&keys));
        Ok(keys)
    }

    /// Drops a keyspace with all of its keys, durably.
    pub(crate) fn drop_keyspace(self: &Arc<Self>, name: &str) -> Result<()> {
        refuse_if_forked()?;
        if name == DEFAULT_NAME {
            return Err(Error::DefaultKeyspace);
        }
        let _catalog = self.catalog_lock.lock();
        let catalog = &self.keyspaces.catalog;
        let Some(keys) = self.keyspaces.find(name) else {
            if self.gap.refuse_key(CATALOG_ID, name.as_bytes(), u64::MAX).is_ok() {
                return Err(Error::KeyspaceNotFound { name: name.into() });
            }
            // It may have been created by a record that is lost. From here on there is none.
            self.delete(catalog, name.as_bytes())?.0.blocking_wait()?;
            return Ok(());
        };
        let entry = self.key(catalog, name.as_bytes())?;
        let mut payload = Vec::new();
        let change = Change::Delete;
        Record { keyspace: catalog.id, key: entry.key, change }.encode(&mut payload);
        keys.put_in_order(&self.table, self.horizon());
        let ticket = self.log.append_locked(|log| {
            let _orders = self.table.all_orders();
            log.append_freeing(&payload, |place| {
                let (seq, position) = (place.seq.0, place.position.0);
                let version = Version { seq, deleted: true, position, len: 0 };
                self.gap.decide_key(catalog.id, entry.key, seq);
                self.set(catalog, entry, version, 0);
                // Its records are dead. Remove its entries, so that cleaning sees that.
                let each = |changed| self.count_garbage(changed);
                keys.delete_range(&self.table, b"", None, version, self.horizon(), each);
                keys.set_dropped();
            })
        })?;
        self.keyspaces.remove(name, ticket.seq());
        ticket.blocking_wait()?;
        self.remove_dropped();
        Ok(())
    }
}
