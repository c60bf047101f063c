//! Atomic batches, with conditions.

use std::ops::Range;
use std::sync::Arc;

use crate::base::key_checks::{check_key, check_value};
use crate::base::operation_errors::WriteError;
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::record::{Change, HEADER_BYTES, Record};
use crate::state::handle::Keyspace;

/// Writes that happen together: after a crash all of them are there, or none. Readers of a
/// [`Snapshot`](crate::Snapshot) or a scan see all of them or none.
///
/// A batch may span keyspaces. Its writes are applied in order; a later one of the same key wins.
/// Keys, values and 24 to 31 bytes for each write take at most about 88 MiB.
///
/// # Examples
/// ```
/// # use esker_kv::{Batch, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = Store::open(dir.path().join("store"))?;
/// let accounts = store.keyspace();
/// let mut batch = Batch::new();
/// batch.put(&accounts, "alice", "90")?;
/// batch.put(&accounts, "bob", "110")?;
/// batch.expect_value(&accounts, "alice", Some("100"))?;
/// assert!(store.write(&batch).is_err(), "alice has no account yet");
/// # Ok::<(), esker_kv::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Batch {
    keyspaces: Vec<Keyspace>,
    /// The encoded records.
    bytes: Vec<u8>,
    writes: Vec<BatchEntry>,
    conditions: Vec<Condition>,
}

/// One write of a batch.
#[derive(Debug, Clone)]
pub(super) struct BatchEntry {
    /// The index of its keyspace in the batch.
    pub(super) keyspace: usize,
    /// The range of its record in the encoded ones.
    record: Range<usize>,
    key_len: usize,
    pub(super) deletes: bool,
}

/// A condition of a batch.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    /// The index of its keyspace in the batch.
    pub(super) keyspace: usize,
    pub(super) key: Vec<u8>,
    pub(super) expectation: Expectation,
}

/// The state of a key that a condition requires.
#[derive(Debug, Clone)]
pub(super) enum Expectation {
    /// The key has this value, or is absent.
    Value(Option<Vec<u8>>),
    /// The key exists, or is absent.
    Exists(bool),
}

impl Batch {
    /// Creates a batch without writes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put.
    ///
    /// # Errors
    /// [`WriteError::KeyTooLarge`], [`WriteError::ValueTooLarge`], [`WriteError::AnotherStore`].
    /// Nothing was added.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), WriteError> {
        check_value(value.as_ref())?;
        self.add(keyspace, key.as_ref(), Change::Put { value: value.as_ref(), moved: false })
    }

    /// Adds a delete. Deleting a key that does not exist is no error.
    ///
    /// # Errors
    /// [`WriteError::KeyTooLarge`], [`WriteError::AnotherStore`]. Nothing was added.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<(), WriteError> {
        self.add(keyspace, key.as_ref(), Change::Delete)
    }

    /// Adds a condition: the batch is written only if the key has this value, or is absent if
    /// `None`.
    ///
    /// # Errors
    /// [`WriteError::KeyTooLarge`], [`WriteError::AnotherStore`]. Nothing was added.
    pub fn expect_value(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: Option<impl AsRef<[u8]>>,
    ) -> Result<(), WriteError> {
        let value = value.map(|value| value.as_ref().to_vec());
        self.expect(keyspace, key.as_ref(), Expectation::Value(value))
    }

    /// Adds a condition: the batch is written only if the key exists, or if it does not.
    ///
    /// # Errors
    /// [`WriteError::KeyTooLarge`], [`WriteError::AnotherStore`]. Nothing was added.
    pub fn expect_exists(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        exists: bool,
    ) -> Result<(), WriteError> {
        self.expect(keyspace, key.as_ref(), Expectation::Exists(exists))
    }

    /// Returns the number of writes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns whether the batch has no writes.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Removes all writes and conditions, and keeps the memory.
    pub fn clear(&mut self) {
        self.keyspaces.clear();
        self.bytes.clear();
        self.writes.clear();
        self.conditions.clear();
    }

    fn expect(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        expectation: Expectation,
    ) -> Result<(), WriteError> {
        check_key(key)?;
        let keyspace = self.add_keyspace(keyspace)?;
        self.conditions.push(Condition { keyspace, key: key.to_vec(), expectation });
        Ok(())
    }

    fn add(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        change: Change<'_>,
    ) -> Result<(), WriteError> {
        check_key(key)?;
        let index = self.add_keyspace(keyspace)?;
        let start = self.bytes.len();
        Record { keyspace: keyspace.reader.keys.id, key, change }.encode(&mut self.bytes);
        self.writes.push(BatchEntry {
            keyspace: index,
            record: start..self.bytes.len(),
            key_len: key.len(),
            deletes: change == Change::Delete,
        });
        Ok(())
    }

    /// Returns the index of a keyspace, and adds it if it is new.
    fn add_keyspace(&mut self, keyspace: &Keyspace) -> Result<usize, WriteError> {
        let same = |other: &Keyspace| Arc::ptr_eq(&other.reader.keys, &keyspace.reader.keys);
        if let Some(index) = self.keyspaces.iter().position(same) {
            return Ok(index);
        }
        let first = self.keyspaces.first();
        if first.is_some_and(|first| !Arc::ptr_eq(&first.writer, &keyspace.writer)) {
            return Err(WriteError::AnotherStore);
        }
        self.keyspaces.push(keyspace.clone());
        Ok(self.keyspaces.len() - 1)
    }

    pub(super) fn keyspaces(&self) -> &[Keyspace] {
        &self.keyspaces
    }

    pub(super) fn entries(&self) -> &[BatchEntry] {
        &self.writes
    }

    pub(super) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    pub(super) fn keys(&self, keyspace: usize) -> &KeyspaceKeys {
        &self.keyspaces[keyspace].reader.keys
    }

    pub(super) fn record(&self, entry: &BatchEntry) -> &[u8] {
        &self.bytes[entry.record.clone()]
    }

    pub(super) fn key(&self, entry: &BatchEntry) -> &[u8] {
        &self.record(entry)[HEADER_BYTES..HEADER_BYTES + entry.key_len]
    }

    /// The value that an entry puts; empty for a delete.
    pub(super) fn value(&self, entry: &BatchEntry) -> &[u8] {
        &self.record(entry)[HEADER_BYTES + entry.key_len..]
    }
}
