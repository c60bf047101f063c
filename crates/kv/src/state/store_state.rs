//! The state of an open store that reading needs: the index, the values in memory, and the records.

use std::sync::Arc;

use esker_disk::process;
use esker_log::reclaim::stored_size;
use parking_lot::Mutex;

use crate::base::store_error::{StoreError, refuse_if_forked};
use crate::cache::ValueCache;
use crate::health::Health;
use crate::index::entry::{EntryId, Version};
use crate::index::history::VERSION_BYTES;
use crate::index::table::Table;
use crate::record::put_len;
use crate::state::gap::Gap;
use crate::state::keyspaces::Keyspaces;
use crate::state::records::Records;
use crate::state::snapshots::{SnapshotPin, Snapshots};

/// The state of an open store that reading needs. A store that is open for reading is nothing else.
#[derive(Debug)]
pub(crate) struct StoreState {
    records: Records,
    table: Table,
    cache: ValueCache,
    keyspaces: Keyspaces,
    snapshots: Snapshots,
    /// The keys that are unknown because records were quarantined.
    gap: Gap,
    history: HistoryLimit,
    /// Shared with the index, which fails the store if it finds an impossible state.
    health: Arc<Health>,
}

/// The bound on the versions that are kept for snapshots.
#[derive(Debug)]
struct HistoryLimit {
    /// The most bytes of memory for replaced versions.
    bytes: u64,
    /// Held while versions are dropped.
    lock: Mutex<()>,
}

impl StoreState {
    pub(crate) fn new(
        records: Records,
        table: Table,
        cache: ValueCache,
        keyspaces: Keyspaces,
        history_bytes: u64,
        gap: Gap,
    ) -> Self {
        let health = Arc::clone(table.health());
        Self {
            records,
            table,
            cache,
            keyspaces,
            snapshots: Snapshots::default(),
            gap,
            history: HistoryLimit { bytes: history_bytes, lock: Mutex::new(()) },
            health,
        }
    }

    #[inline]
    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    #[inline]
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    #[inline]
    pub(crate) fn cache(&self) -> &ValueCache {
        &self.cache
    }

    #[inline]
    pub(crate) fn keyspaces(&self) -> &Keyspaces {
        &self.keyspaces
    }

    pub(crate) fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    #[inline]
    pub(crate) fn gap(&self) -> &Gap {
        &self.gap
    }

    #[inline]
    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// The position up to which everything is durable, or was applied where another process writes.
    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        match &self.records {
            Records::Log(log) => log.durable().0,
            Records::ReadOnly(_, follow) => follow.applied(),
        }
    }

    /// The position of the last record that readers see.
    pub(crate) fn newest(&self) -> u64 {
        match &self.records {
            Records::Log(log) => log.accepted().0,
            Records::ReadOnly(_, follow) => follow.applied(),
        }
    }

    /// Every open snapshot, and every reader of durable versions, reads at or after this number.
    #[inline]
    pub(crate) fn horizon(&self) -> u64 {
        self.durable().min(self.snapshots.oldest())
    }

    /// Opens a snapshot of everything that readers see.
    pub(crate) fn pin_newest(&self) -> Arc<SnapshotPin> {
        let pin = self.snapshots.open(|| self.newest());
        debug_assert!(pin.seq() <= self.newest(), "a snapshot is of accepted records");
        // A record that is at or below its number may still be missing in the index.
        self.table.await_writers();
        pin
    }

    /// Opens a snapshot of what is durable.
    pub(crate) fn pin_durable(&self) -> Arc<SnapshotPin> {
        // The index names each of these records: they were not committed before.
        self.snapshots.open(|| self.durable())
    }

    /// Whether the replaced versions take more memory than they may.
    #[inline]
    pub(crate) fn is_history_full(&self) -> bool {
        self.table.kept() * VERSION_BYTES > self.history.bytes
    }

    /// Expires the oldest snapshots until the replaced versions take little memory again.
    #[cold]
    pub(crate) fn limit_history(&self) {
        let Some(_lock) = self.history.lock.try_lock() else { return };
        self.table.trim_history(self.horizon());
        // A snapshot is in the way only if it reads what is older than all that is durable.
        while self.is_history_full()
            && self.snapshots.oldest() < self.durable()
            && self.snapshots.expire_oldest()
        {
            self.table.trim_history(self.horizon());
        }
    }

    /// The bytes of memory of replaced versions that are kept.
    pub(crate) fn history_bytes(&self) -> u64 {
        self.table.kept() * VERSION_BYTES
    }

    /// Removes the entries of dropped keyspaces that no reader needs any more.
    pub(crate) fn remove_dropped(&self) {
        self.keyspaces.remove_dropped(&self.table, self.horizon(), self.records.oldest());
    }

    /// The bytes of a version of an entry in the log; `None` for a delete.
    #[inline]
    pub(crate) fn live_bytes(&self, id: EntryId, version: Version) -> Option<u64> {
        let len = || put_len(self.table.arena().key_len(id), version.len as usize);
        (!version.deleted).then(|| stored_size(len() as usize))
    }

    /// Refuses every call from here on.
    pub(crate) fn close(&self) {
        self.health.close();
    }

    /// Ends the wait for a snapshot that was dropped. In a child it stays: the parent has it.
    pub(crate) fn close_snapshot(&self, pin: &SnapshotPin) {
        if !process::is_forked() {
            self.snapshots.close(pin);
        }
    }

    /// Refuses a call on a store that is being closed, has failed, or is that of a parent process.
    #[inline]
    pub(crate) fn refuse_if_closing(&self) -> Result<(), StoreError> {
        refuse_if_forked()?;
        Ok(self.health.check()?)
    }
}
