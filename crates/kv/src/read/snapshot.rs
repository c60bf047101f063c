//! A store as it was at one point in time.

use std::sync::Arc;

use bytes::Bytes;
use esker_log::Seq;

use crate::base::operation_errors::ReadError;
use crate::base::store_error::{StoreError, refuse_if_forked};
use crate::cache::value::Value;
use crate::read::key_range::KeyRange;
use crate::read::scan::Scan;
use crate::state::handle::KeyspaceReader;
use crate::state::snapshots::SnapshotPin;
use crate::state::store_state::StoreState;

/// A store as it was at one point in time, for reading.
///
/// While it is open, the versions that it sees are kept, in memory and on the disk, within bounds:
/// see [`Options::history_bytes`](crate::Options::history_bytes) and
/// [`Options::snapshot_timeout`](crate::Options::snapshot_timeout). Beyond those it expires, and
/// every call returns [`ReadError::SnapshotExpired`]. Drop it when it is not needed any more.
#[derive(Debug)]
pub struct Snapshot {
    state: Arc<StoreState>,
    pin: Arc<SnapshotPin>,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.state.close_snapshot(&self.pin);
    }
}

impl Snapshot {
    pub(crate) fn new(state: Arc<StoreState>, pin: Arc<SnapshotPin>) -> Self {
        Self { state, pin }
    }

    /// Returns the position of the last write that it sees.
    pub fn seq(&self) -> Seq {
        Seq(self.pin.seq())
    }

    /// Returns the value that a key had; `None` if it had none. `keyspace` is a
    /// [`Keyspace`](crate::Keyspace) or a [`KeyspaceReader`].
    ///
    /// # Errors
    /// [`ReadError`]: [`ReadError::SnapshotExpired`], [`ReadError::AnotherStore`], and as
    /// [`KeyspaceReader::get`](crate::KeyspaceReader::get).
    pub fn get(
        &self,
        keyspace: &impl AsRef<KeyspaceReader>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>, ReadError> {
        let keyspace = keyspace.as_ref();
        self.check(keyspace)?;
        let value = self.state.get_at(&keyspace.keys, key.as_ref(), self.pin.seq());
        self.pin.check()?;
        value
    }

    /// Scans a range of keys as they were; see
    /// [`KeyspaceReader::scan`](crate::KeyspaceReader::scan). The scan is part of this snapshot and
    /// expires with it.
    ///
    /// # Errors
    /// [`ReadError`]: [`ReadError::SnapshotExpired`], [`ReadError::AnotherStore`], and as
    /// [`KeyspaceReader::scan`](crate::KeyspaceReader::scan).
    pub fn scan(
        &self,
        keyspace: &impl AsRef<KeyspaceReader>,
        range: impl Into<KeyRange>,
    ) -> Result<SnapshotScan<'_>, ReadError> {
        self.scan_range(keyspace.as_ref(), range.into())
    }

    /// Scans the keys that began with a prefix.
    ///
    /// # Errors
    /// As [`Snapshot::scan`].
    pub fn scan_prefix(
        &self,
        keyspace: &impl AsRef<KeyspaceReader>,
        prefix: impl AsRef<[u8]>,
    ) -> Result<SnapshotScan<'_>, ReadError> {
        self.scan_range(keyspace.as_ref(), KeyRange::prefix(prefix))
    }

    fn scan_range(
        &self,
        keyspace: &KeyspaceReader,
        range: KeyRange,
    ) -> Result<SnapshotScan<'_>, ReadError> {
        self.check(keyspace)?;
        let (state, keys) = (Arc::clone(&self.state), Arc::clone(&keyspace.keys));
        let known = state.gap().refuse_range(keys.id, range.low(), range.high(), self.pin.seq());
        known.map_err(StoreError::Quarantined)?;
        let scan = Scan::new(state, keys, Arc::clone(&self.pin), false, range);
        Ok(SnapshotScan { scan, _snapshot: self })
    }

    fn check(&self, keyspace: &KeyspaceReader) -> Result<(), ReadError> {
        if !Arc::ptr_eq(&self.state, &keyspace.state) {
            return Err(ReadError::AnotherStore);
        }
        refuse_if_forked()?;
        self.pin.check()
    }
}

/// A [`Scan`] of a [`Snapshot`].
#[derive(Debug)]
pub struct SnapshotScan<'a> {
    scan: Scan,
    /// The snapshot keeps the point in time open.
    _snapshot: &'a Snapshot,
}

impl SnapshotScan<'_> {
    /// Returns the keys in descending order. To be called before the first `next`.
    #[must_use]
    pub fn rev(mut self) -> Self {
        self.scan = self.scan.rev();
        self
    }
}

impl Iterator for SnapshotScan<'_> {
    type Item = Result<(Bytes, Value), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.scan.next()
    }
}
