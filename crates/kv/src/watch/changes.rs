//! Changes, as a watch delivers them.

use std::sync::Arc;

use esker_log::Seq;

use crate::base::corrupted_record::CorruptedRecord;
use crate::record::{self, Record};
use crate::state::keyspaces::{CATALOG_ID, CatalogChange};
use crate::watch::keyspace_names::KeyspaceNames;

/// A run of changes, in order; never empty. A batch of writes is always in one of them. Cheap to
/// clone, and may be iterated any number of times.
#[derive(Debug, Clone)]
pub struct Changes {
    batch: esker_log::Batch,
    /// The names of the keyspaces of these changes.
    names: Vec<(u32, Arc<str>)>,
    position: Seq,
    len: usize,
}

/// One change. It borrows from its [`Changes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change<'a> {
    /// Its position: [`Store::watch`](crate::Store::watch) from here continues after it.
    pub seq: Seq,
    /// The name of its keyspace.
    pub keyspace: &'a str,
    /// The action on the keyspace or its keys.
    pub action: Action<'a>,
}

/// The action of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action<'a> {
    /// A value was put.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// A key was deleted.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// All keys of a range were deleted. The start is below the end.
    DeleteRange {
        /// The first key of the range.
        from: &'a [u8],
        /// Its end, which is excluded; `None` for all keys from the first one on.
        to: Option<&'a [u8]>,
    },
    /// The keyspace was created.
    CreateKeyspace,
    /// The keyspace was dropped with all of its keys. The keys are not listed.
    DropKeyspace,
}

/// Whether a record is a change of the store. The others are internal: the copies that cleaning
/// makes, and the counter of the catalog.
fn is_change(record: &Record<'_>) -> bool {
    let is_counter = record.keyspace == CATALOG_ID && record.key.is_empty();
    !is_counter && !matches!(record.change, record::Change::Put { moved: true, .. })
}

impl Changes {
    /// The changes among these records. They may be empty.
    pub(super) fn new(
        batch: esker_log::Batch,
        names_by_id: &KeyspaceNames,
    ) -> Result<Self, CorruptedRecord> {
        let mut names: Vec<(u32, Arc<str>)> = Vec::new();
        let (mut position, mut len) = (Seq::ZERO, 0);
        for record in &batch {
            position = record.seq;
            let invalid = |what| CorruptedRecord { seq: record.seq, what };
            let record = Record::decode(record.payload).map_err(invalid)?;
            names_by_id.follow(&record).map_err(invalid)?;
            if !is_change(&record) {
                continue;
            }
            if record.keyspace == CATALOG_ID {
                CatalogChange::from_record(&record).map_err(invalid)?;
                len += 1;
            } else if names.iter().any(|(id, _)| *id == record.keyspace) {
                len += 1;
            } else if let Some(name) = names_by_id.get(record.keyspace) {
                names.push((record.keyspace, name));
                len += 1;
            }
        }
        Ok(Self { batch, names, position, len })
    }

    /// Returns the position to resume from when all of these were processed.
    pub fn position(&self) -> Seq {
        self.position
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no changes. A watch never returns such a run.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over the changes.
    pub fn iter(&self) -> ChangesIter<'_> {
        ChangesIter { records: self.batch.iter(), names: &self.names }
    }
}

impl<'a> IntoIterator for &'a Changes {
    type Item = Change<'a>;
    type IntoIter = ChangesIter<'a>;

    fn into_iter(self) -> ChangesIter<'a> {
        self.iter()
    }
}

/// Iterator over [`Changes`].
#[derive(Debug, Clone)]
pub struct ChangesIter<'a> {
    records: esker_log::BatchIter<'a>,
    names: &'a [(u32, Arc<str>)],
}

impl<'a> Iterator for ChangesIter<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        loop {
            let record = self.records.next()?;
            let seq = record.seq;
            let Ok(record) = Record::decode(record.payload) else {
                unreachable!("the records of changes were decoded when they were delivered")
            };
            if !is_change(&record) {
                continue;
            }
            let Record { keyspace, key, change } = record;
            if keyspace == CATALOG_ID {
                let Ok(Some(change)) = CatalogChange::from_record(&record) else {
                    unreachable!("the changes of the catalog were decoded, too")
                };
                let CatalogChange { name: keyspace, id } = change;
                let action = match id {
                    Some(_) => Action::CreateKeyspace,
                    None => Action::DropKeyspace,
                };
                return Some(Change { seq, keyspace, action });
            }
            let name = self.names.iter().find(|(id, _)| *id == keyspace);
            let Some((_, keyspace)) = name else { continue };
            let action = match change {
                record::Change::Put { value, .. } => Action::Put { key, value },
                record::Change::Delete => Action::Delete { key },
                record::Change::DeleteRange { end } => Action::DeleteRange { from: key, to: end },
            };
            return Some(Change { seq, keyspace, action });
        }
    }
}
