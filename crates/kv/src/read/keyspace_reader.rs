//! Reading a keyspace.

use std::sync::Arc;

use crate::base::operation_errors::ReadError;
use crate::base::store_error::StoreError;
use crate::cache::value::Value;
use crate::read::key_range::KeyRange;
use crate::read::scan::Scan;
use crate::state::handle::{Keyspace, KeyspaceReader};

/// # Reading
///
/// In a [`Store`](crate::Store), reads see the accepted writes of this process, durable or not,
/// unless the method says otherwise. In a [`ReadOnlyStore`](crate::ReadOnlyStore), they see the
/// state of its last refresh.
///
/// # Async code
/// Reading has no async form. A value that is in memory is returned at once, so calling it on a
/// task of an executor is right while the values fit in
/// [`Options::cache_bytes`](crate::Options::cache_bytes). Otherwise a call blocks for one read of
/// the disk for each value: call it in `spawn_blocking` or its like, with
/// [`get_many`](KeyspaceReader::get_many) for several keys. A task that is cancelled meanwhile
/// changes nothing.
impl KeyspaceReader {
    /// Returns the keyspace's name.
    pub fn name(&self) -> &str {
        self.keys.name()
    }

    /// Returns the number of keys. Where records were quarantined: of those that are known.
    pub fn len(&self) -> u64 {
        self.keys.count()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the value of a key; `None` if it does not exist. Copies nothing: the value is a
    /// view of the memory that holds it. Blocks on the disk if the value is not in memory.
    ///
    /// # Errors
    /// [`ReadError`]; [`StoreError::Quarantined`] if the newest record of the key may be lost.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, ReadError> {
        self.state.get(&self.keys, key.as_ref())
    }

    /// Returns the durable value of a key: the one that a crash would leave at least.
    ///
    /// # Errors
    /// As [`KeyspaceReader::get`](crate::KeyspaceReader::get).
    pub fn get_durable(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, ReadError> {
        self.state.get_durable(&self.keys, key.as_ref())
    }

    /// Returns the values of several keys, in their order. Faster than as many calls of
    /// [`KeyspaceReader::get`](crate::KeyspaceReader::get): the lookups overlap. Not one point in
    /// time; a [`Snapshot`](crate::Snapshot) is.
    ///
    /// # Errors
    /// As [`KeyspaceReader::get`](crate::KeyspaceReader::get).
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>, ReadError> {
        self.state.get_many(&self.keys, keys)
    }

    /// Returns whether a key exists. Never reads from the disk.
    ///
    /// # Errors
    /// [`ReadError`]: [`ReadError::KeyTooLarge`], [`ReadError::KeyspaceDropped`],
    /// [`ReadError::Store`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, ReadError> {
        self.state.contains(&self.keys, key.as_ref())
    }

    /// Scans a range of keys in order, as they are now.
    ///
    /// # Errors
    /// [`ReadError`]: [`ReadError::KeyspaceDropped`], [`ReadError::Store`];
    /// [`StoreError::Quarantined`] if a record of any key of the range may be lost. An item may
    /// also be [`ReadError::SnapshotExpired`].
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = esker_kv::Store::open(dir.path().join("store"))?;
    /// let keys = store.keyspace();
    /// for key in ["a", "b", "c"] {
    ///     let _ = keys.put(key, key)?;
    /// }
    /// for entry in keys.scan("b"..)? {
    ///     let (key, value) = entry?;
    ///     println!("{key:?} {value:?}");
    /// }
    /// # Ok::<(), esker_kv::Error>(())
    /// ```
    pub fn scan(&self, range: impl Into<KeyRange>) -> Result<Scan, ReadError> {
        self.scan_range(range.into())
    }

    /// Scans the keys that begin with a prefix.
    ///
    /// # Errors
    /// As [`KeyspaceReader::scan`](crate::KeyspaceReader::scan).
    pub fn scan_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Scan, ReadError> {
        self.scan_range(KeyRange::prefix(prefix))
    }

    fn scan_range(&self, range: KeyRange) -> Result<Scan, ReadError> {
        self.state.refuse_if_closing()?;
        if self.keys.is_dropped() {
            return Err(ReadError::KeyspaceDropped { name: self.keys.name().into() });
        }
        let (state, keys) = (Arc::clone(&self.state), Arc::clone(&self.keys));
        let pin = state.pin_newest();
        let known = state.gap().refuse_range(keys.id, range.low(), range.high(), pin.seq());
        if let Err(gap) = known {
            state.snapshots().close(&pin);
            return Err(StoreError::Quarantined(gap).into());
        }
        Ok(Scan::new(state, keys, pin, true, range))
    }
}

/// # Reading
///
/// Reads see the accepted writes of this process, durable or not, unless the method says otherwise.
/// See [`KeyspaceReader`] for reading in async code.
impl Keyspace {
    /// Returns the keyspace's name.
    pub fn name(&self) -> &str {
        self.reader.name()
    }

    /// Returns the number of keys. As [`KeyspaceReader::len`].
    pub fn len(&self) -> u64 {
        self.reader.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.reader.is_empty()
    }

    /// Returns the value of a key; `None` if it does not exist. As [`KeyspaceReader::get`].
    ///
    /// # Errors
    /// [`ReadError`], as [`KeyspaceReader::get`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, ReadError> {
        self.reader.get(key)
    }

    /// Returns the durable value of a key. As [`KeyspaceReader::get_durable`].
    ///
    /// # Errors
    /// [`ReadError`], as [`KeyspaceReader::get`].
    pub fn get_durable(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, ReadError> {
        self.reader.get_durable(key)
    }

    /// Returns the values of several keys, in their order. As [`KeyspaceReader::get_many`].
    ///
    /// # Errors
    /// [`ReadError`], as [`KeyspaceReader::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>, ReadError> {
        self.reader.get_many(keys)
    }

    /// Returns whether a key exists. As [`KeyspaceReader::contains_key`].
    ///
    /// # Errors
    /// [`ReadError`], as [`KeyspaceReader::contains_key`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, ReadError> {
        self.reader.contains_key(key)
    }

    /// Scans a range of keys in order, as they are now. As [`KeyspaceReader::scan`].
    ///
    /// # Errors
    /// [`ReadError`], as [`KeyspaceReader::scan`].
    pub fn scan(&self, range: impl Into<KeyRange>) -> Result<Scan, ReadError> {
        self.reader.scan(range)
    }

    /// Scans the keys that begin with a prefix. As [`KeyspaceReader::scan`].
    ///
    /// # Errors
    /// [`ReadError`], as [`KeyspaceReader::scan`].
    pub fn scan_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Scan, ReadError> {
        self.reader.scan_prefix(prefix)
    }
}
