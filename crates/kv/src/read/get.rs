//! Reading the value of one key.

use esker_log::{Place, Position, Seq};

use crate::base::error::{Error, Result, check_key};
use crate::cache::value::Value;
use crate::index::arena::Hashed;
use crate::index::keyspace::Keys;
use crate::index::table::Current;
use crate::record::{Change, Record, put_len};
use crate::state::view::View;

/// A value of at most this many bytes is returned from the cache when it was read.
const SMALL: usize = 4 << 10;

/// The number of keys that are looked up at a time.
const GROUP: usize = 32;

impl View {
    pub(crate) fn key<'a>(&self, keys: &Keys, key: &'a [u8]) -> Result<Hashed<'a>> {
        check_key(key)?;
        if keys.is_dropped() {
            return Err(Error::KeyspaceDropped { name: keys.name.clone() });
        }
        Ok(self.table.hash(keys.id, key))
    }

    /// The newest accepted value.
    #[inline]
    pub(crate) fn get(&self, keys: &Keys, key: &[u8]) -> Result<Option<Value>> {
        let key = self.key(keys, key)?;
        self.look(key, || Ok(self.table.find(key).filter(|current| !current.version.deleted)))
    }

    /// The newest accepted values of several keys. The memory that one lookup needs is requested
    /// while others are under way.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &Keys,
        all: &[K],
    ) -> Result<Vec<Option<Value>>> {
        let mut values = Vec::with_capacity(all.len());
        let mut hashed = Vec::with_capacity(GROUP.min(all.len()));
        let mut found = Vec::with_capacity(GROUP.min(all.len()));
        for group in all.chunks(GROUP) {
            hashed.clear();
            found.clear();
            for key in group {
                let key = self.key(keys, key.as_ref())?;
                self.table.prefetch_slot(key);
                hashed.push(key);
            }
            for key in &hashed {
                self.table.prefetch_entry(*key);
            }
            for key in &hashed {
                let current = self.table.find(*key).filter(|current| !current.version.deleted);
                if let Some(current) = current {
                    self.cache.prefetch(current.cached);
                }
                found.push(current);
            }
            for (key, current) in hashed.iter().zip(&found) {
                let mut first = *current;
                // Looked up once more if cleaning moved the record meanwhile.
                let again = || self.table.find(*key).filter(|current| !current.version.deleted);
                values.push(self.look(*key, || Ok(first.take().or_else(again)))?);
            }
        }
        Ok(values)
    }

    /// The newest durable value.
    pub(crate) fn get_durable(&self, keys: &Keys, key: &[u8]) -> Result<Option<Value>> {
        let key = self.key(keys, key)?;
        self.look(key, || {
            loop {
                let durable = self.durable();
                let found = self.table.find_at(key, durable);
                // If more became durable, the version that was the newest may be gone already.
                if found.is_some() || self.durable() == durable {
                    return Ok(found);
                }
            }
        })
    }

    /// The value at a point in time, which is pinned by the caller.
    pub(crate) fn get_at(&self, keys: &Keys, key: &[u8], seq: u64) -> Result<Option<Value>> {
        let key = self.key(keys, key)?;
        self.look(key, || Ok(self.table.find_at(key, seq)))
    }

    /// Looks a version up and reads its value. Again, if cleaning moved the record meanwhile.
    #[inline]
    fn look(
        &self,
        key: Hashed<'_>,
        mut find: impl FnMut() -> Result<Option<Current>>,
    ) -> Result<Option<Value>> {
        self.refuse_if_closing()?;
        let Some(mut current) = find()? else { return Ok(None) };
        loop {
            match self.value(key.key, &current) {
                Ok(value) => return Ok(Some(value)),
                Err(error) => match find()? {
                    Some(again) if again.version == current.version => return Err(error),
                    Some(again) => current = again,
                    None => return Ok(None),
                },
            }
        }
    }

    /// The value of a version: from the cache, or from the log.
    #[inline]
    pub(crate) fn value(&self, key: &[u8], current: &Current) -> Result<Value> {
        let Current { id, version, cached } = *current;
        if let Some(hit) = self.cache.get(cached, version.len as usize) {
            if hit.ages {
                let cached = self.cache.insert(&hit.value);
                self.table.set_cached(id, version.seq, cached);
            }
            return Ok(hit.value);
        }
        self.read_value(key, current)
    }

    #[cold]
    fn read_value(&self, key: &[u8], current: &Current) -> Result<Value> {
        let Current { id, version, .. } = *current;
        let payload = self.records.read_placed(Place {
            seq: Seq(version.seq),
            position: Position(version.position),
            len: put_len(key.len(), version.len as usize),
        })?;
        let invalid = |what| Error::CorruptedRecord { seq: Seq(version.seq), what };
        let record = Record::decode(&payload).map_err(invalid)?;
        let Change::Put { value, .. } = record.change else {
            return Err(invalid("it does not put a value"));
        };
        if record.key != key {
            return Err(invalid("it is of another key"));
        }
        let cached = self.cache.insert(value);
        self.table.set_cached(id, version.seq, cached);
        let len = value.len();
        // Not the blocks that were read, for a value that is much smaller.
        match self.cache.get(cached, len) {
            Some(hit) if len <= SMALL => Ok(hit.value),
            _ => Ok(Value::stored(payload, len)),
        }
    }

    /// Whether the key exists.
    pub(crate) fn contains(&self, keys: &Keys, key: &[u8]) -> Result<bool> {
        let key = self.key(keys, key)?;
        self.refuse_if_closing()?;
        Ok(self.table.find(key).is_some_and(|current| !current.version.deleted))
    }
}
