//! The keys of a registry, as its records give them.
//!
//! ```text
//! record: kind u8, then the key. 1 added, 2 being removed, 3 removed, 4 whole (no key),
//!         5 its log was created
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use esker_log::{LogStream, Seq};

use crate::manager::directory_names::directory_of;
use crate::options::LABEL_LIMIT;
use crate::storage_error::StorageError;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Added = 1,
    Removing = 2,
    Removed = 3,
    /// Every log in the directory has its key in the registry. Without a key.
    Whole = 4,
    Created = 5,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Added, Self::Removing, Self::Removed, Self::Whole, Self::Created];

    /// Encodes a record.
    pub(super) fn record(self, key: &[u8]) -> Vec<u8> {
        debug_assert!(key.len() <= LABEL_LIMIT, "a key is too long");
        debug_assert!(self != Self::Whole || key.is_empty(), "this record has no key");
        [&[self as u8], key].concat()
    }
}

/// The keys that the records so far add and remove.
#[derive(Debug, Default)]
pub(super) struct RegistryState {
    keys: BTreeMap<Arc<[u8]>, KeyState>,
    /// The number of records in the log.
    pub(super) records: u64,
    /// The last record.
    last: Seq,
    is_whole: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyState {
    /// Its log may not exist yet.
    Added,
    /// Its log was created.
    Created,
    /// Its removal began.
    Removing,
}

impl RegistryState {
    /// Reads all records.
    pub(super) fn read(mut records: LogStream) -> Result<Self, StorageError> {
        let mut state = Self::default();
        while let Some(batch) = records.try_next().map_err(StorageError::from_log)? {
            for record in &batch {
                state.replay(record.seq, record.payload)?;
            }
        }
        Ok(state)
    }

    /// Applies a record.
    pub(super) fn replay(&mut self, seq: Seq, record: &[u8]) -> Result<(), StorageError> {
        let corrupt = |what| StorageError::CorruptedRecord { seq, what };
        let (kind, key) = record.split_first().ok_or(corrupt("a record of no key"))?;
        if key.len() > LABEL_LIMIT {
            return Err(corrupt("a key that is too long"));
        }
        let Some(kind) = Kind::ALL.into_iter().find(|known| *known as u8 == *kind) else {
            return Err(corrupt("it is no record of a registry"));
        };
        debug_assert!(seq > self.last, "records are not in order");
        self.records += 1;
        self.last = seq;
        match kind {
            Kind::Added => drop(self.keys.insert(key.into(), KeyState::Added)),
            Kind::Created => drop(self.keys.insert(key.into(), KeyState::Created)),
            Kind::Removing => drop(self.keys.insert(key.into(), KeyState::Removing)),
            Kind::Removed => drop(self.keys.remove(key)),
            Kind::Whole => self.is_whole = true,
        }
        Ok(())
    }

    /// The records that give the same keys.
    pub(super) fn compacted(&self) -> Vec<Vec<u8>> {
        let keys = self.keys.iter().map(|(key, state)| match state {
            KeyState::Added => Kind::Added.record(key),
            KeyState::Created => Kind::Created.record(key),
            KeyState::Removing => Kind::Removing.record(key),
        });
        keys.chain(self.is_whole.then(|| Kind::Whole.record(&[]))).collect()
    }

    /// The number of records after a compaction, at most.
    pub(super) fn live_records(&self) -> u64 {
        self.keys.len() as u64 + 1
    }

    /// The last record.
    pub(super) fn last(&self) -> Seq {
        self.last
    }

    /// Whether every log in the directory has its key here.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The keys that are not being removed, in order.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        let kept = self.keys.iter().filter(|(_, state)| **state != KeyState::Removing);
        kept.map(|(key, _)| key)
    }

    /// The keys whose removal began and did not end.
    pub(super) fn removing(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        let removing = self.keys.iter().filter(|(_, state)| **state == KeyState::Removing);
        removing.map(|(key, _)| key)
    }

    /// The directories of all keys, those that are being removed too.
    pub(super) fn directories(&self) -> BTreeSet<String> {
        self.keys.keys().map(|key| directory_of(key)).collect()
    }

    /// Whether a key was added, and the end of its removal was not recorded.
    pub(super) fn is_known(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    pub(super) fn is_kept(&self, key: &[u8]) -> bool {
        matches!(self.keys.get(key), Some(KeyState::Added | KeyState::Created))
    }

    /// Whether a key was added, and its log may not exist yet.
    pub(super) fn is_added(&self, key: &[u8]) -> bool {
        self.keys.get(key) == Some(&KeyState::Added)
    }

    /// Whether the log of a key was created, and its removal did not begin.
    pub(super) fn is_created(&self, key: &[u8]) -> bool {
        self.keys.get(key) == Some(&KeyState::Created)
    }

    pub(super) fn is_removing(&self, key: &[u8]) -> bool {
        self.keys.get(key) == Some(&KeyState::Removing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_no_registrys_is_refused() {
        let long = [&[Kind::Added as u8][..], &[7; LABEL_LIMIT + 1]].concat();
        for nonsense in [&[][..], &[0], &[6, 7], &long] {
            let refused = RegistryState::default().replay(Seq(9), nonsense);
            assert!(matches!(refused, Err(StorageError::CorruptedRecord { seq: Seq(9), .. })));
        }
    }
}
