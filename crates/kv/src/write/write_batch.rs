//! Writing a batch.

use esker_log::component::{AppendRefusal, LockedAppender, RecordPlace};

use crate::base::operation_errors::{ReadError, WriteError};
use crate::base::store_error::StoreError;
use crate::base::ticket::Ticket;
use crate::index::entry::{HashedKey, Version};
use crate::state::store_writer::StoreWriter;
use crate::write::batch::{Batch, Condition, Expectation};
use crate::write::driver::{AttemptOutcome, Write};

/// A batch, as the attempts to write it need it.
#[derive(Debug)]
struct BatchWrite<'a> {
    batch: &'a Batch,
    /// The key and the record of each entry.
    keys: Vec<HashedKey<'a>>,
    payloads: Vec<&'a [u8]>,
    /// The place of each value in the cache; empty until the conditions were found to hold.
    cached: Vec<u64>,
    conditions: Vec<HashedKey<'a>>,
    /// The newest version of the key of each condition, when it was found to hold.
    versions: Vec<Option<Version>>,
    /// The shards of all keys, sorted.
    shards: Vec<u8>,
}

impl StoreWriter {
    pub(crate) fn write_batch(&self, batch: &Batch) -> Result<Ticket, WriteError> {
        self.run(BatchWrite::new(self, batch)?)
    }

    pub(crate) async fn write_batch_async(&self, batch: &Batch) -> Result<Ticket, WriteError> {
        self.run_async(BatchWrite::new(self, batch)?).await
    }

    fn live(&self, key: HashedKey<'_>) -> Option<Version> {
        let current = self.state().table().find(key);
        current.map(|current| current.version).filter(|version| !version.deleted)
    }
}

impl<'a> BatchWrite<'a> {
    fn new(store: &StoreWriter, batch: &'a Batch) -> Result<Self, WriteError> {
        if let Some(first) = batch.keyspaces().first()
            && !std::ptr::eq(&*first.writer, store)
        {
            return Err(WriteError::AnotherStore);
        }
        let hash = |keyspace, key| store.state().table().hash(batch.keys(keyspace).id, key);
        let (entries, conditions) = (batch.entries().iter(), batch.conditions().iter());
        let payloads = entries.clone().map(|entry| batch.record(entry)).collect();
        let keys: Vec<_> = entries.map(|entry| hash(entry.keyspace, batch.key(entry))).collect();
        let conditions: Vec<_> = conditions.map(|one| hash(one.keyspace, &one.key)).collect();
        let mut shards: Vec<_> = keys.iter().chain(&conditions).map(|key| key.shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let (cached, versions) = (Vec::new(), Vec::new());
        Ok(Self { batch, keys, payloads, cached, conditions, versions, shards })
    }

    /// Puts the values into the cache, once: not those of a batch whose conditions do not hold.
    fn cache_values(&mut self, store: &StoreWriter) {
        if self.cached.is_empty() {
            let Self { batch, cached, .. } = self;
            let cache = store.state().cache();
            cached.extend(batch.entries().iter().map(|entry| match entry.deletes {
                true => 0,
                false => cache.insert(batch.value(entry)),
            }));
        }
    }

    /// Checks the conditions without a lock, because values may have to be read from the disk.
    fn check_conditions(&mut self, store: &StoreWriter) -> Result<(), WriteError> {
        self.versions.clear();
        let conditions = self.batch.conditions().iter().zip(&self.conditions).enumerate();
        for (n, (condition, key)) in conditions {
            let version = store.live(*key);
            if version.is_none() {
                let known = store.state().gap().refuse_key(key.keyspace, key.key, u64::MAX);
                known.map_err(StoreError::Quarantined)?;
            }
            let holds = self.holds(store, condition, version);
            if !holds.map_err(|error| condition_error(store, error))? {
                // A version that comes and goes meanwhile may be missed, as by a call before it.
                return Err(WriteError::ConditionFailed { condition: n });
            }
            self.versions.push(version);
        }
        Ok(())
    }

    /// Whether a condition holds for this version of its key.
    fn holds(
        &self,
        store: &StoreWriter,
        condition: &Condition,
        version: Option<Version>,
    ) -> Result<bool, ReadError> {
        Ok(match &condition.expectation {
            Expectation::Exists(exists) => version.is_some() == *exists,
            Expectation::Value(None) => version.is_none(),
            Expectation::Value(Some(value)) => {
                let keys = self.batch.keys(condition.keyspace);
                version.is_some_and(|version| version.len as usize == value.len())
                    && store.state().get(keys, &condition.key)?.is_some_and(|got| *got == **value)
            }
        })
    }

    /// Makes the entries the newest versions of their keys. The caller holds the write locks.
    fn place(&self, store: &StoreWriter, places: &[RecordPlace]) {
        let Self { batch, keys, cached, .. } = self;
        let state = store.state();
        let entries = batch.entries();
        let each_once = places.len() == entries.len() && cached.len() == entries.len();
        state.health().fail_unless(each_once, "every entry of a batch has a place in the log");
        for (((entry, key), cached), place) in entries.iter().zip(keys).zip(cached).zip(places) {
            let (seq, offset) = (place.seq.0, place.position.0);
            if entry.deletes {
                state.gap().decide_key(key.keyspace, key.key, seq);
            }
            if entry.deletes && state.table().find(*key).is_none() {
                continue;
            }
            let len = batch.value(entry).len() as u32;
            let version = Version { seq, deleted: entry.deletes, offset, len };
            store.set(batch.keys(entry.keyspace), *key, version, *cached);
        }
    }
}

/// The error of reading the key of a condition.
fn condition_error(store: &StoreWriter, error: ReadError) -> WriteError {
    match error {
        ReadError::KeyspaceDropped { name } => WriteError::KeyspaceDropped { name },
        ReadError::Trimmed(trimmed) => StoreError::Log(esker_log::Error::Trimmed(trimmed)).into(),
        ReadError::Store(error) => error.into(),
        ReadError::KeyTooLarge { .. } => {
            store.state().health().fail("the keys of a batch are within the limit").into()
        }
        ReadError::IndexFull => {
            store.state().health().fail("reading a store adds nothing to its index").into()
        }
        ReadError::AnotherStore | ReadError::SnapshotExpired => {
            store.state().health().fail("a condition is not read at a point in time").into()
        }
    }
}

impl Write for BatchWrite<'_> {
    fn is_throttled(&self) -> bool {
        true
    }

    fn prepare(&mut self, store: &StoreWriter) -> Result<(), WriteError> {
        self.check_conditions(store)?;
        self.cache_values(store);
        Ok(())
    }

    fn attempt(
        &self,
        store: &StoreWriter,
        log: &LockedAppender<'_>,
    ) -> Result<AttemptOutcome, AppendRefusal> {
        let Self { batch, keys, payloads, conditions, versions, shards, .. } = self;
        let _write_locks = store.state().table().lock_writes_of(shards);
        let mut keyspaces = batch.keyspaces().iter();
        if let Some(dropped) = keyspaces.find(|keyspace| keyspace.reader.keys.is_dropped()) {
            let name = dropped.name().into();
            return Ok(AttemptOutcome::Refused(WriteError::KeyspaceDropped { name }));
        }
        let puts = batch.entries().iter().zip(keys).filter(|(entry, _)| !entry.deletes);
        if puts.clone().next().is_some() && !store.has_room(puts.map(|(_, key)| *key)) {
            return Ok(AttemptOutcome::IndexFull);
        }
        debug_assert_eq!(conditions.len(), versions.len(), "each condition was found to hold");
        if conditions.iter().zip(versions).any(|(key, version)| store.live(*key) != *version) {
            return Ok(AttemptOutcome::Stale);
        }
        let ticket = log.append_atomic(payloads, |places| self.place(store, places))?;
        Ok(AttemptOutcome::Written(ticket))
    }

    fn finish(&self, store: &StoreWriter) {
        for keyspace in self.batch.keyspaces() {
            store.after_write(&keyspace.reader.keys);
        }
    }
}
