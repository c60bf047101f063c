//! Reading the value of one key.

use esker_log::component::RecordPlace;
use esker_log::{Payload, Position, Seq};

use crate::base::corrupted_record::CorruptedRecord;
use crate::base::key_checks::{KeyRefusal, check_key};
use crate::base::operation_errors::{ApplyError, ReadError};
use crate::base::store_error::{StoreError, refuse_if_forked};
use crate::base::trim_retries::TrimRetries;
use crate::cache::value::Value;
use crate::index::entry::{HashedKey, Version};
use crate::index::keyspace_keys::KeyspaceKeys;
use crate::index::table::CurrentVersion;
use crate::record::{Change, Record, put_len};
use crate::state::records::Records;
use crate::state::store_state::StoreState;

/// The most bytes of a value that is returned from the cache when it was read from a file.
const CACHED_RETURN_BYTES_MAX: usize = 4 << 10;

/// The number of keys that are looked up at a time.
const LOOKUP_GROUP_KEYS: usize = 32;

/// The version of a key that is read.
#[derive(Debug, Clone, Copy)]
enum ReadPoint {
    /// The newest that readers see.
    Newest,
    /// The newest that is durable.
    Durable,
    /// The one of a point in time, which the caller pinned.
    At(u64),
}

impl StoreState {
    /// Hashes a key of a keyspace that exists.
    ///
    /// Inlined: the processor waits where it copies a key that was written field by field, and the
    /// lookups of calls that follow each other overlap no more.
    #[inline(always)]
    pub(crate) fn key<'a>(
        &self,
        keys: &KeyspaceKeys,
        key: &'a [u8],
    ) -> Result<HashedKey<'a>, KeyRefusal> {
        refuse_if_forked()?;
        check_key(key)?;
        if keys.is_dropped() {
            return Err(KeyRefusal::KeyspaceDropped { name: keys.name().into() });
        }
        Ok(self.table().hash(keys.id, key))
    }

    /// The newest accepted value.
    #[inline]
    pub(crate) fn get(&self, keys: &KeyspaceKeys, key: &[u8]) -> Result<Option<Value>, ReadError> {
        self.read(self.key(keys, key)?, ReadPoint::Newest)
    }

    /// The newest accepted values of several keys. The memory that one lookup needs is requested
    /// while others are under way.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &KeyspaceKeys,
        all: &[K],
    ) -> Result<Vec<Option<Value>>, ReadError> {
        let mut values = Vec::with_capacity(all.len());
        let mut hashed = Vec::with_capacity(LOOKUP_GROUP_KEYS.min(all.len()));
        let mut found = Vec::with_capacity(LOOKUP_GROUP_KEYS.min(all.len()));
        for group in all.chunks(LOOKUP_GROUP_KEYS) {
            hashed.clear();
            found.clear();
            for key in group {
                let key = self.key(keys, key.as_ref())?;
                self.table().prefetch_slot(key);
                hashed.push(key);
            }
            for key in &hashed {
                self.table().prefetch_entry(*key);
            }
            for key in &hashed {
                let current = self.find_newest(*key);
                if let Some(current) = current {
                    self.cache().prefetch(current.cached);
                }
                found.push(current);
            }
            self.refuse_if_closing()?;
            let mut cold = Vec::new();
            for (n, (key, current)) in hashed.iter().zip(&found).enumerate() {
                values.push(match current {
                    Some(current) => {
                        let value = self.in_memory(current);
                        if value.is_none() {
                            cold.push((n, *current));
                        }
                        value
                    }
                    None => self.absent(*key, ReadPoint::Newest)?,
                });
            }
            if !cold.is_empty() {
                let first = values.len() - hashed.len();
                self.get_cold(&hashed, &cold, &mut values[first..])?;
            }
        }
        Ok(values)
    }

    /// Reads values that are not in memory, several at a time.
    #[cold]
    fn get_cold(
        &self,
        keys: &[HashedKey<'_>],
        cold: &[(usize, CurrentVersion)],
        values: &mut [Option<Value>],
    ) -> Result<(), ReadError> {
        let versions = cold.iter().map(|(n, current)| (keys[*n].key, current));
        let keyspace = keys.first().map_or(0, |key| key.keyspace);
        let mut read = self.read_ahead(keyspace, versions).into_iter().peekable();
        for (at, (n, current)) in cold.iter().enumerate() {
            values[*n] = match read.next_if(|(read_at, _)| *read_at == at) {
                Some((_, value)) => Some(value),
                None => self.value_or_retry(keys[*n], ReadPoint::Newest, *current)?,
            };
        }
        Ok(())
    }

    /// The value of a version, if it is in memory, and its chunk is not dropped soon.
    #[inline]
    fn in_memory(&self, current: &CurrentVersion) -> Option<Value> {
        let hit = self.cache().get(current.cached, current.version.len as usize)?;
        (!hit.ages).then_some(hit.value)
    }

    /// The newest durable value.
    pub(crate) fn get_durable(
        &self,
        keys: &KeyspaceKeys,
        key: &[u8],
    ) -> Result<Option<Value>, ReadError> {
        self.read(self.key(keys, key)?, ReadPoint::Durable)
    }

    /// The value at a point in time, which is pinned by the caller.
    pub(crate) fn get_at(
        &self,
        keys: &KeyspaceKeys,
        key: &[u8],
        seq: u64,
    ) -> Result<Option<Value>, ReadError> {
        let (key, point) = (self.key(keys, key)?, ReadPoint::At(seq));
        match self.read(key, point) {
            Err(ReadError::Trimmed(_)) if matches!(self.records(), Records::ReadOnly(..)) => {}
            value => return value,
        }
        self.refresh()?;
        match self.find(key, point) {
            Some(current) => self.successor(key, &current).map(Some),
            None => self.absent(key, point),
        }
    }

    #[inline]
    fn find(&self, key: HashedKey<'_>, point: ReadPoint) -> Option<CurrentVersion> {
        match point {
            ReadPoint::Newest => self.find_newest(key),
            ReadPoint::Durable => self.find_durable(key),
            ReadPoint::At(seq) => self.table().find_at(key, seq),
        }
    }

    /// The newest version that readers see.
    #[inline]
    fn find_newest(&self, key: HashedKey<'_>) -> Option<CurrentVersion> {
        match self.records() {
            Records::Log(_) => self.table().find(key).filter(|current| !current.version.deleted),
            Records::ReadOnly(..) => self.find_durable(key),
        }
    }

    #[inline(never)]
    fn find_durable(&self, key: HashedKey<'_>) -> Option<CurrentVersion> {
        loop {
            let durable = self.durable();
            let found = self.table().find_at(key, durable);
            // If more became durable, the version that was the newest may be gone already.
            if found.is_some() || self.durable() == durable {
                return found;
            }
        }
    }

    /// Looks a version up and reads its value.
    #[inline]
    fn read(&self, key: HashedKey<'_>, point: ReadPoint) -> Result<Option<Value>, ReadError> {
        self.refuse_if_closing()?;
        match self.find(key, point) {
            Some(current) => self.found_value(key, point, current),
            None => self.absent(key, point),
        }
    }

    /// The value of a version that was looked up. What most calls need, and nothing else: the
    /// processor overlaps the cache misses of calls that follow each other only if they are short.
    #[inline]
    fn found_value(
        &self,
        key: HashedKey<'_>,
        point: ReadPoint,
        current: CurrentVersion,
    ) -> Result<Option<Value>, ReadError> {
        match self.in_memory(&current) {
            Some(value) => Ok(Some(value)),
            None => self.value_or_retry(key, point, current),
        }
    }

    /// Reads the value of a version, and looks the version up again if cleaning moved the record.
    /// The record of a point in time that another process dropped is not found again.
    #[cold]
    #[inline(never)]
    fn value_or_retry(
        &self,
        key: HashedKey<'_>,
        point: ReadPoint,
        mut current: CurrentVersion,
    ) -> Result<Option<Value>, ReadError> {
        let mut trim_retries = TrimRetries::default();
        loop {
            let error = match self.value(key.keyspace, key.key, &current) {
                Ok(value) => return Ok(Some(value)),
                Err(error) => error,
            };
            let followed = !matches!(point, ReadPoint::At(_))
                && trim_retries.is_next_allowed()
                && self.follow_dropped(&error)?;
            match self.find(key, point) {
                Some(again) if again.version != current.version => current = again,
                // Cleaning dropped more meanwhile.
                Some(_) if followed => {}
                Some(_) => return Err(error),
                None => return self.absent(key, point),
            }
        }
    }

    /// The answer for a key that has no entry: it does not exist, unless records were quarantined.
    #[inline]
    fn absent(&self, key: HashedKey<'_>, point: ReadPoint) -> Result<Option<Value>, ReadError> {
        // A lookup that met an impossible state finds nothing.
        self.health().check_invariants()?;
        if self.gap().is_some() { self.absent_over_a_gap(key, point) } else { Ok(None) }
    }

    #[cold]
    #[inline(never)]
    fn absent_over_a_gap(
        &self,
        key: HashedKey<'_>,
        point: ReadPoint,
    ) -> Result<Option<Value>, ReadError> {
        let at = match (point, self.records()) {
            (ReadPoint::Newest, Records::Log(_)) => u64::MAX,
            (ReadPoint::Newest | ReadPoint::Durable, _) => self.durable(),
            (ReadPoint::At(seq), _) => seq,
        };
        let known = self.gap().refuse_key(key.keyspace, key.key, at);
        known.map_err(StoreError::Quarantined)?;
        Ok(None)
    }

    /// Applies everything durable by now, if another process writes the log and dropped a record.
    /// `false` if nothing can be done about the error.
    #[cold]
    fn follow_dropped(&self, error: &ReadError) -> Result<bool, ApplyError> {
        let dropped = matches!(error, ReadError::Trimmed(_));
        if !dropped || matches!(self.records(), Records::Log(_)) {
            return Ok(false);
        }
        self.refresh()?;
        Ok(true)
    }

    /// The value of a version whose record the writer dropped, from the copy that cleaning made of
    /// it. The index has everything that was durable when the record was dropped.
    #[cold]
    fn successor(&self, key: HashedKey<'_>, current: &CurrentVersion) -> Result<Value, ReadError> {
        let next = self.table().successor(current.id, current.version.seq);
        let Some(next) = next.filter(|next| !next.deleted) else {
            return Err(ReadError::SnapshotExpired);
        };
        let payload = self.read_record(key.key, next).map_err(|error| match error {
            ReadError::Trimmed(_) => ReadError::SnapshotExpired,
            error => error,
        })?;
        match decode_put(&payload, key.keyspace, key.key, next)? {
            (value, true) => {
                let len = value.len();
                Ok(Value::stored(payload, len))
            }
            // It replaced the value.
            (_, false) => Err(ReadError::SnapshotExpired),
        }
    }

    /// The value of a version: from the cache, or from the log.
    #[inline]
    pub(crate) fn value(
        &self,
        keyspace: u32,
        key: &[u8],
        current: &CurrentVersion,
    ) -> Result<Value, ReadError> {
        let CurrentVersion { id, version, cached } = *current;
        if let Some(hit) = self.cache().get(cached, version.len as usize) {
            if hit.ages {
                let cached = self.cache().insert(&hit.value);
                self.table().set_cached(id, version.seq, cached);
            }
            return Ok(hit.value);
        }
        self.read_value(keyspace, key, current)
    }

    #[cold]
    fn read_value(
        &self,
        keyspace: u32,
        key: &[u8],
        current: &CurrentVersion,
    ) -> Result<Value, ReadError> {
        let payload = self.read_record(key, current.version)?;
        let (value, _) = decode_put(&payload, keyspace, key, current.version)?;
        Ok(self.keep(current, value, &payload))
    }

    /// Caches a value that was read with its record.
    pub(crate) fn keep(&self, current: &CurrentVersion, value: &[u8], record: &Payload) -> Value {
        let cached = self.cache().insert(value);
        self.table().set_cached(current.id, current.version.seq, cached);
        let len = value.len();
        // Not the blocks that were read, for a value that is much smaller.
        match self.cache().get(cached, len) {
            Some(hit) if len <= CACHED_RETURN_BYTES_MAX => hit.value,
            _ => Value::stored(record.clone(), len),
        }
    }

    fn read_record(&self, key: &[u8], version: Version) -> Result<Payload, ReadError> {
        let place = RecordPlace {
            seq: Seq(version.seq),
            position: Position(version.offset),
            len: put_len(key.len(), version.len as usize),
        };
        Ok(self.records().read_placed(place)?)
    }

    /// Whether the key exists.
    pub(crate) fn contains(&self, keys: &KeyspaceKeys, key: &[u8]) -> Result<bool, ReadError> {
        let key = self.key(keys, key)?;
        self.refuse_if_closing()?;
        let exists = self.find_newest(key).is_some();
        if !exists {
            self.absent(key, ReadPoint::Newest)?;
        }
        Ok(exists)
    }
}

/// Decodes the record of this version of a key: its value, and whether cleaning copied it.
pub(crate) fn decode_put<'a>(
    payload: &'a [u8],
    keyspace: u32,
    key: &[u8],
    version: Version,
) -> Result<(&'a [u8], bool), CorruptedRecord> {
    let invalid = |what| CorruptedRecord { seq: Seq(version.seq), what };
    let record = Record::decode(payload).map_err(invalid)?;
    let Change::Put { value, moved } = record.change else {
        return Err(invalid("it does not put a value"));
    };
    if record.keyspace != keyspace || record.key != key {
        return Err(invalid("it is of another key"));
    }
    if value.len() != version.len as usize {
        return Err(invalid("its value has another length"));
    }
    Ok((value, moved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_the_value_of_its_own_version_only() {
        let mut payload = Vec::new();
        let change = Change::Put { value: b"value", moved: true };
        Record { keyspace: 2, key: b"key", change }.encode(&mut payload);
        let version = Version { seq: 7, deleted: false, offset: 0, len: 5 };
        let value = |keyspace, key: &[u8], version| {
            decode_put(&payload, keyspace, key, version).ok().map(|(value, _)| value.to_vec())
        };
        assert_eq!(value(2, b"key", version).as_deref(), Some(&b"value"[..]));
        assert_eq!(value(3, b"key", version), None, "another keyspace");
        assert_eq!(value(2, b"kez", version), None, "another key");
        assert_eq!(value(2, b"key", Version { len: 4, ..version }), None, "another length");
    }
}
