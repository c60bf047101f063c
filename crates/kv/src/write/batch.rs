//! Atomic batches, with conditions.

use std::ops::Range;
use std::sync::Arc;

use esker_log::{Attempt, Refused};

use crate::base::error::{Error, Result, check_key, check_value, refuse_if_forked};
use crate::base::ticket::Ticket;
use crate::index::arena::{HashedKey, Version};
use crate::index::keys::Keys;
use crate::record::{Change, HEADER_BYTES, Record};
use crate::state::handle::Keyspace;
use crate::state::writer::Writer;

/// How often the conditions of a batch are decided, while other writers change their keys.
const ATTEMPTS_MAX: usize = 100;

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
    writes: Vec<Write>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone)]
struct Write {
    /// Its place in `keyspaces`.
    keyspace: usize,
    record: Range<usize>,
    key_len: usize,
    deletes: bool,
}

#[derive(Debug, Clone)]
struct Condition {
    keyspace: usize,
    key: Vec<u8>,
    expect: Expect,
}

#[derive(Debug, Clone)]
enum Expect {
    /// The key has this value, or is absent.
    Value(Option<Vec<u8>>),
    /// The key exists, or is absent.
    Exists(bool),
}

impl Batch {
    /// A batch without writes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put.
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`], [`Error::ValueTooLarge`], [`Error::AnotherStore`]. Nothing was
    /// added.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        check_value(value.as_ref())?;
        self.add(keyspace, key.as_ref(), Change::Put { value: value.as_ref(), moved: false })
    }

    /// Adds a delete. Deleting a key that does not exist is no error.
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`], [`Error::AnotherStore`]. Nothing was added.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(keyspace, key.as_ref(), Change::Delete)
    }

    /// Adds a condition: the batch is written only if the key has this value, or is absent if
    /// `None`.
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`], [`Error::AnotherStore`]. Nothing was added.
    pub fn expect_value(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: Option<impl AsRef<[u8]>>,
    ) -> Result<()> {
        let value = value.map(|value| value.as_ref().to_vec());
        self.expect(keyspace, key.as_ref(), Expect::Value(value))
    }

    /// Adds a condition: the batch is written only if the key exists, or if it does not.
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`], [`Error::AnotherStore`]. Nothing was added.
    pub fn expect_exists(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        exists: bool,
    ) -> Result<()> {
        self.expect(keyspace, key.as_ref(), Expect::Exists(exists))
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

    fn expect(&mut self, keyspace: &Keyspace, key: &[u8], expect: Expect) -> Result<()> {
        check_key(key)?;
        let keyspace = self.place_of(keyspace)?;
        self.conditions.push(Condition { keyspace, key: key.to_vec(), expect });
        Ok(())
    }

    fn add(&mut self, keyspace: &Keyspace, key: &[u8], change: Change<'_>) -> Result<()> {
        check_key(key)?;
        let place = self.place_of(keyspace)?;
        let start = self.bytes.len();
        Record { keyspace: keyspace.keys.id, key, change }.encode(&mut self.bytes);
        self.writes.push(Write {
            keyspace: place,
            record: start..self.bytes.len(),
            key_len: key.len(),
            deletes: change == Change::Delete,
        });
        Ok(())
    }

    fn place_of(&mut self, keyspace: &Keyspace) -> Result<usize> {
        let same = |other: &Keyspace| Arc::ptr_eq(&other.keys, &keyspace.keys);
        if let Some(place) = self.keyspaces.iter().position(same) {
            return Ok(place);
        }
        if self.keyspaces.first().is_some_and(|first| !Arc::ptr_eq(&first.inner, &keyspace.inner)) {
            return Err(Error::AnotherStore);
        }
        self.keyspaces.push(keyspace.clone());
        Ok(self.keyspaces.len() - 1)
    }

    fn keys(&self, place: usize) -> &Keys {
        &self.keyspaces[place].keys
    }

    fn record(&self, write: &Write) -> &[u8] {
        &self.bytes[write.record.clone()]
    }

    fn key(&self, write: &Write) -> &[u8] {
        &self.record(write)[HEADER_BYTES..HEADER_BYTES + write.key_len]
    }
}

/// A batch as the attempts to write it need it.
struct Prepared<'a> {
    batch: &'a Batch,
    keys: Vec<HashedKey<'a>>,
    payloads: Vec<&'a [u8]>,
    cached: Vec<u64>,
    conditions: Vec<HashedKey<'a>>,
    shards: Vec<u8>,
}

/// What a condition was decided on: the newest version of its key.
type Seen = Vec<Option<Version>>;

/// The outcome of an attempt.
enum Attempted {
    Written(Option<esker_log::Ticket>),
    /// A key of a condition has changed since it was looked at.
    Stale,
}

impl Writer {
    pub(crate) fn write_batch(&self, batch: &Batch) -> Result<Ticket> {
        refuse_if_forked()?;
        self.cleaning.pace_writer();
        let mut prepared = self.prepare(batch)?;
        for try_number in 0..ATTEMPTS_MAX {
            let seen = self.check_conditions(&prepared)?;
            self.cache_values(&mut prepared);
            let attempt = |log: &Attempt<'_>| self.attempt_batch(log, &prepared, &seen);
            match self.log.append_locked(attempt)? {
                Ok(Attempted::Written(ticket)) => return self.batch_written(batch, ticket),
                Ok(Attempted::Stale) => {}
                Err(Error::IndexFull) if try_number == 0 => self.free_entries(),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended)
    }

    pub(crate) async fn write_batch_async(&self, batch: &Batch) -> Result<Ticket> {
        refuse_if_forked()?;
        self.cleaning.throttle.wait().await;
        let mut prepared = self.prepare(batch)?;
        for try_number in 0..ATTEMPTS_MAX {
            let seen = self.check_conditions(&prepared)?;
            self.cache_values(&mut prepared);
            let attempt = |log: &Attempt<'_>| self.attempt_batch(log, &prepared, &seen);
            match self.log.append_locked_async(attempt).await? {
                Ok(Attempted::Written(ticket)) => return self.batch_written(batch, ticket),
                Ok(Attempted::Stale) => {}
                Err(Error::IndexFull) if try_number == 0 => self.free_entries(),
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended)
    }

    fn batch_written(&self, batch: &Batch, ticket: Option<esker_log::Ticket>) -> Result<Ticket> {
        for keyspace in &batch.keyspaces {
            self.after_write(&keyspace.keys);
        }
        match ticket {
            Some(ticket) => Ok(Ticket(ticket)),
            None => Ok(Ticket(self.log.barrier()?)),
        }
    }

    fn prepare<'a>(&self, batch: &'a Batch) -> Result<Prepared<'a>> {
        if let Some(first) = batch.keyspaces.first()
            && !std::ptr::eq(&*first.inner, self)
        {
            return Err(Error::AnotherStore);
        }
        let hash = |place: usize, key| self.table.hash(batch.keys(place).id, key);
        let keys: Vec<_> =
            batch.writes.iter().map(|write| hash(write.keyspace, batch.key(write))).collect();
        let conditions: Vec<_> =
            batch.conditions.iter().map(|one| hash(one.keyspace, &one.key)).collect();
        let mut shards: Vec<_> = keys.iter().chain(&conditions).map(|key| key.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let payloads: Vec<_> = batch.writes.iter().map(|write| batch.record(write)).collect();
        Ok(Prepared { batch, keys, payloads, cached: Vec::new(), conditions, shards })
    }

    /// Puts the values into the cache, once: not those of a batch whose conditions do not hold.
    fn cache_values(&self, prepared: &mut Prepared<'_>) {
        let Prepared { batch, payloads, cached, .. } = prepared;
        if cached.is_empty() {
            cached.extend(batch.writes.iter().zip(payloads).map(|(write, payload)| {
                let value = &payload[HEADER_BYTES + write.key_len..];
                if write.deletes { 0 } else { self.cache.insert(value) }
            }));
        }
    }

    fn live(&self, key: HashedKey<'_>) -> Option<Version> {
        self.table.find(key).map(|current| current.version).filter(|version| !version.deleted)
    }

    /// Decides the conditions without a lock, because values may have to be read from the disk.
    fn check_conditions(&self, prepared: &Prepared<'_>) -> Result<Seen> {
        let conditions = prepared.batch.conditions.iter().zip(&prepared.conditions).enumerate();
        let mut seen = Vec::with_capacity(prepared.conditions.len());
        for (n, (condition, key)) in conditions {
            let version = self.live(*key);
            if version.is_none() {
                self.gap.refuse_key(key.keyspace, key.key, u64::MAX)?;
            }
            let holds = match &condition.expect {
                Expect::Exists(exists) => version.is_some() == *exists,
                Expect::Value(None) => version.is_none(),
                Expect::Value(Some(value)) => {
                    let keys = prepared.batch.keys(condition.keyspace);
                    version.is_some_and(|version| version.len as usize == value.len())
                        && self.get(keys, &condition.key)?.is_some_and(|found| *found == **value)
                }
            };
            if !holds {
                // A version that comes and goes meanwhile may be missed, as by a call before it.
                return Err(Error::ConditionFailed { condition: n });
            }
            seen.push(version);
        }
        Ok(seen)
    }

    fn attempt_batch(
        &self,
        log: &Attempt<'_>,
        prepared: &Prepared<'_>,
        seen: &Seen,
    ) -> std::result::Result<Result<Attempted>, Refused> {
        let Prepared { batch, keys, payloads, cached, conditions, shards } = prepared;
        let _orders = self.table.orders(shards);
        if let Some(dropped) = batch.keyspaces.iter().find(|keyspace| keyspace.keys.is_dropped()) {
            return Ok(Err(Error::KeyspaceDropped { name: dropped.keys.name().into() }));
        }
        let puts = batch.writes.iter().zip(keys).filter(|(write, _)| !write.deletes);
        if puts.clone().next().is_some()
            && let Err(error) = self.check_room(puts.map(|(_, key)| *key))
        {
            return Ok(Err(error));
        }
        if conditions.iter().zip(seen).any(|(key, seen)| self.live(*key) != *seen) {
            return Ok(Ok(Attempted::Stale));
        }
        let ticket = log.append_atomic(payloads, |places| {
            for (((write, key), cached), place) in
                batch.writes.iter().zip(keys).zip(cached).zip(places)
            {
                let (seq, position) = (place.seq.0, place.position.0);
                if write.deletes {
                    self.gap.decide_key(key.keyspace, key.key, seq);
                }
                if write.deletes && self.table.find(*key).is_none() {
                    continue;
                }
                let len = (write.record.len() - HEADER_BYTES - write.key_len) as u32;
                let version = Version { seq, deleted: write.deletes, position, len };
                self.set(batch.keys(write.keyspace), *key, version, *cached);
            }
        })?;
        Ok(Ok(Attempted::Written(ticket)))
    }
}
