//! The names of the keyspaces that a watch meets.

use std::sync::Arc;

use esker_log::{ReadOnlyLog, Start};

use crate::base::corrupted_record::CorruptedRecord;
use crate::base::operation_errors::WatchError;
use crate::base::trim_retries::TrimRetries;
use crate::record::Record;
use crate::state::keyspaces::{CatalogChange, DEFAULT_ID, DEFAULT_NAME, Names};

/// The names that a watch knows.
#[derive(Debug)]
pub(super) struct KeyspaceNames {
    names: Arc<Names>,
    /// Whether the watch itself reads them from the catalog. An open store keeps them otherwise.
    reads_catalog: bool,
}

impl KeyspaceNames {
    /// The names that an open store keeps.
    pub(super) fn from_store(names: &Arc<Names>) -> Self {
        Self { names: Arc::clone(names), reads_catalog: false }
    }

    /// Reads the names from the log: all that have an entry, and are durable.
    ///
    /// The entry of a keyspace may be after records of it, because cleaning may have moved the
    /// entry. So all of the log is read. A keyspace without an entry was dropped durably: cleaning
    /// drops an entry only when its copy, or the drop, is durable.
    pub(super) fn from_log(log: &ReadOnlyLog) -> Result<Self, WatchError> {
        let names = Arc::new(Names::default());
        names.insert(DEFAULT_ID, DEFAULT_NAME);
        let mut stream = log.stream(Start::Oldest)?;
        let mut trim_retries = TrimRetries::default();
        loop {
            match stream.try_next() {
                Ok(None) => return Ok(Self { names, reads_catalog: true }),
                Ok(Some(batch)) => {
                    for record in &batch {
                        let invalid = |what| CorruptedRecord { seq: record.seq, what };
                        let decoded = Record::decode(record.payload).map_err(invalid)?;
                        let change = CatalogChange::from_record(&decoded).map_err(invalid)?;
                        if let Some(CatalogChange { name, id: Some(id) }) = change {
                            names.insert(id, name);
                        }
                    }
                }
                // Cleaning passed this reader. What it dropped and is still needed was copied.
                Err(esker_log::ReadError::Trimmed(trimmed)) => {
                    trim_retries.count(trimmed)?;
                    stream = log.stream(Start::Oldest)?;
                }
                // The stream continues after the gap.
                Err(esker_log::ReadError::Quarantined(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn get(&self, id: u32) -> Option<Arc<str>> {
        self.names.get(id)
    }

    /// Follows the catalog. An open store does so by itself.
    pub(super) fn follow(&self, record: &Record<'_>) -> Result<(), &'static str> {
        if !self.reads_catalog {
            return Ok(());
        }
        match CatalogChange::from_record(record)? {
            Some(CatalogChange { name, id: Some(id) }) => self.names.insert(id, name),
            Some(CatalogChange { name, id: None }) => self.names.forget_one(name),
            None => {}
        }
        Ok(())
    }
}
