//! Creating and dropping keyspaces.

use std::sync::Arc;

use crate::base::error::{Error, Result, check_name};
use crate::index::arena::Version;
use crate::index::keyspace::Keys;
use crate::record::{Change, Record};
use crate::state::inner::Inner;
use crate::state::keyspaces::{DEFAULT_NAME, FIRST, number};
use crate::write::batch::Batch;

impl Inner {
    /// Returns the keyspace of this name; creates it, durably, if there is none.
    pub(crate) fn create_keyspace(self: &Arc<Self>, name: &str) -> Result<Arc<Keys>> {
        check_name(name)?;
        let _catalog = self.catalog_lock.lock();
        if let Some(keys) = self.keyspaces.find(name) {
            return Ok(keys);
        }
        let catalog = self.handle(&self.keyspaces.catalog);
        let next = self.get(&catalog.keys, b"")?.as_deref().and_then(number).unwrap_or(FIRST);
        // Records may name a higher number, if a repair lost the one in the catalog.
        let id = next.max(self.keyspaces.unused().ok_or(Error::IndexFull)?);
        let mut batch = Batch::new();
        batch.put(&catalog, name, id.to_le_bytes())?;
        batch.put(&catalog, "", id.checked_add(1).ok_or(Error::IndexFull)?.to_le_bytes())?;
        // Durable before it is used: its records must not outlive it.
        self.write_batch(&batch)?.blocking_wait()?;
        let keys = Arc::new(Keys::new(id, name));
        self.keyspaces.insert(Arc::clone(&keys));
        Ok(keys)
    }

    /// Drops a keyspace with all of its keys, durably.
    pub(crate) fn drop_keyspace(self: &Arc<Self>, name: &str) -> Result<()> {
        if name == DEFAULT_NAME {
            return Err(Error::DefaultKeyspace);
        }
        let _catalog = self.catalog_lock.lock();
        let Some(keys) = self.keyspaces.find(name) else {
            return Err(Error::KeyspaceNotFound { name: name.into() });
        };
        let catalog = &self.keyspaces.catalog;
        let entry = self.key(catalog, name.as_bytes())?;
        let mut payload = Vec::new();
        let change = Change::Delete;
        Record { keyspace: catalog.id, key: entry.key, change }.encode(&mut payload);
        keys.put_in_order(&self.table, self.horizon());
        let ticket = self.log.append_locked(|log| {
            let _orders = self.table.all_orders();
            let ticket = log.append_internal(&payload)?;
            let (seq, position) = (ticket.seq().0, ticket.position().0);
            let version = Version { seq, deleted: true, position, len: 0 };
            self.set(catalog, entry, version, 0);
            // Its records are dead. Remove its entries, so that cleaning sees that.
            keys.delete_range(&self.table, b"", None, version, self.horizon());
            keys.set_dropped();
            Ok(ticket)
        })?;
        self.keyspaces.remove(name, ticket.seq());
        ticket.blocking_wait()?;
        self.remove_dropped();
        Ok(())
    }
}
