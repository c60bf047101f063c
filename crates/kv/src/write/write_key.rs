//! Writing one key.

use esker_log::component::{AppendRefusal, LockedAppender, Purpose, RecordPlace};

use crate::base::key_checks::check_value;
use crate::base::operation_errors::WriteError;
use crate::base::ticket::Ticket;
use crate::index::entry::{HashedKey, Version};
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::record::{Change, Record};
use crate::state::store_writer::StoreWriter;
use crate::write::driver::{AttemptOutcome, Write};
use crate::write::scratch::Scratch;

/// A put or delete of one key.
#[derive(Debug)]
struct KeyWrite<'a> {
    keys: &'a KeyspaceKeys,
    key: HashedKey<'a>,
    /// The encoded record.
    payload: Scratch,
    /// The value to put; `None` for a delete.
    value: Option<&'a [u8]>,
    /// The place of the value in the cache; 0 if it is not there.
    cached: u64,
}

impl StoreWriter {
    #[inline]
    pub(super) fn put(
        &self,
        keys: &KeyspaceKeys,
        key: &[u8],
        value: &[u8],
    ) -> Result<Ticket, WriteError> {
        let key = self.admit_put(keys, key, value)?;
        self.run(KeyWrite::put(keys, key, value))
    }

    pub(super) async fn put_async(
        &self,
        keys: &KeyspaceKeys,
        key: &[u8],
        value: &[u8],
    ) -> Result<Ticket, WriteError> {
        let key = self.admit_put(keys, key, value)?;
        self.run_async(KeyWrite::put(keys, key, value)).await
    }

    pub(super) fn delete(&self, keys: &KeyspaceKeys, key: &[u8]) -> Result<Ticket, WriteError> {
        self.run(KeyWrite::delete(keys, self.state().key(keys, key)?))
    }

    pub(super) async fn delete_async(
        &self,
        keys: &KeyspaceKeys,
        key: &[u8],
    ) -> Result<Ticket, WriteError> {
        self.run_async(KeyWrite::delete(keys, self.state().key(keys, key)?)).await
    }

    /// Hashes the key of a put whose key and value are within their limits.
    #[inline(always)]
    fn admit_put<'a>(
        &self,
        keys: &KeyspaceKeys,
        key: &'a [u8],
        value: &[u8],
    ) -> Result<HashedKey<'a>, WriteError> {
        check_value(value)?;
        let key = self.state().key(keys, key)?;
        self.state().table().prefetch_slot(key);
        Ok(key)
    }
}

impl<'a> KeyWrite<'a> {
    /// Inlined, as the attempt is, so that a put is one run of code.
    #[inline(always)]
    fn put(keys: &'a KeyspaceKeys, key: HashedKey<'a>, value: &'a [u8]) -> Self {
        Self::new(keys, key, Change::Put { value, moved: false }, Some(value))
    }

    #[inline]
    fn delete(keys: &'a KeyspaceKeys, key: HashedKey<'a>) -> Self {
        Self::new(keys, key, Change::Delete, None)
    }

    #[inline(always)]
    fn new(
        keys: &'a KeyspaceKeys,
        key: HashedKey<'a>,
        change: Change<'a>,
        value: Option<&'a [u8]>,
    ) -> Self {
        let mut payload = Scratch::new();
        Record { keyspace: keys.id, key: key.key, change }.encode(&mut payload);
        Self { keys, key, payload, value, cached: 0 }
    }

    fn deletes(&self) -> bool {
        self.value.is_none()
    }
}

impl Write for KeyWrite<'_> {
    #[inline]
    fn is_throttled(&self) -> bool {
        !self.deletes()
    }

    /// Puts the value into the cache.
    #[inline]
    fn prepare(&mut self, store: &StoreWriter) -> Result<(), WriteError> {
        if let Some(value) = self.value
            && self.cached == 0
        {
            self.cached = store.state().cache().insert(value);
        }
        Ok(())
    }

    /// Appends the record and makes it the newest version of its key, before it can become durable.
    /// So a `get` after a watch delivered the record returns this version or a later one. A delete
    /// of a key that does not exist appends nothing.
    #[inline(always)]
    fn attempt(
        &self,
        store: &StoreWriter,
        log: &LockedAppender<'_>,
    ) -> Result<AttemptOutcome, AppendRefusal> {
        let Self { keys, key, ref payload, value, cached } = *self;
        let (state, deletes) = (store.state(), self.deletes());
        let _write_lock = state.table().lock_writes(key.shard);
        if keys.is_dropped() {
            let name = keys.name().into();
            return Ok(AttemptOutcome::Refused(WriteError::KeyspaceDropped { name }));
        }
        if !deletes && !store.has_room(std::iter::once(key)) {
            return Ok(AttemptOutcome::IndexFull);
        }
        let exists = || state.table().find(key).is_some_and(|current| !current.version.deleted);
        let mut has_entry = true;
        if deletes && !exists() {
            if state.gap().refuse_key(key.keyspace, key.key, u64::MAX).is_ok() {
                return Ok(AttemptOutcome::Written(None));
            }
            // The key may exist without one: records were quarantined.
            has_entry = false;
        }
        state.table().prefetch_entry(key);
        let placed = |place: RecordPlace| {
            let (seq, offset) = (place.seq.0, place.position.0);
            if deletes {
                // First: a reader finds the key's entry, or that it was deleted.
                state.gap().decide_key(key.keyspace, key.key, seq);
            }
            if has_entry {
                let len = value.map_or(0, <[u8]>::len) as u32;
                store.set(keys, key, Version { seq, deleted: deletes, offset, len }, cached);
            }
        };
        let payload = payload.as_slice();
        let purpose = if deletes { Purpose::Freeing } else { Purpose::Ordinary };
        let ticket = log.append(purpose, payload, placed)?;
        Ok(AttemptOutcome::Written(Some(ticket)))
    }

    #[inline]
    fn finish(&self, store: &StoreWriter) {
        store.after_write(self.keys);
    }
}
