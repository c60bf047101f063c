//! The names of the keyspaces that a watch meets.

use std::sync::Arc;

use esker_log::{ReadOnlyLog, Start};

use crate::base::error::{Error, Result};
use crate::record::{Change, Record};
use crate::state::keyspaces::{CATALOG, DEFAULT, DEFAULT_NAME, Names, number};

/// The names that a watch knows.
#[derive(Debug)]
pub(super) struct Naming {
    names: Arc<Names>,
    /// Whether the watch itself reads them from the catalog. An open store keeps them otherwise.
    own: bool,
}

impl Naming {
    /// The names that an open store keeps.
    pub(super) fn of_store(names: &Arc<Names>) -> Self {
        Self { names: Arc::clone(names), own: false }
    }

    /// Reads the names from the log: all that have an entry, and are durable.
    ///
    /// The entry of a keyspace may be after records of it, because cleaning may have moved the
    /// entry. So all of the log is read. A keyspace without an entry was dropped durably: cleaning
    /// drops an entry only when its copy, or the drop, is durable.
    pub(super) fn of_log(log: &ReadOnlyLog) -> Result<Self> {
        let names = Arc::new(Names::default());
        names.insert(DEFAULT, DEFAULT_NAME);
        let mut stream = log.stream(Start::Oldest)?;
        loop {
            match stream.try_next() {
                Ok(None) => return Ok(Self { names, own: true }),
                Ok(Some(batch)) => {
                    for record in &batch {
                        let invalid = |what| Error::CorruptedRecord { seq: record.seq, what };
                        let decoded = Record::decode(record.payload).map_err(invalid)?;
                        if let Some((id, name)) = created(&decoded).map_err(invalid)? {
                            names.insert(id, name);
                        }
                    }
                }
                // Cleaning passed this reader. What it dropped and is still needed was copied.
                Err(esker_log::Error::Trimmed { .. }) => stream = log.stream(Start::Oldest)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn get(&self, id: u32) -> Option<Arc<str>> {
        self.names.get(id)
    }

    /// Follows the catalog. An open store does so by itself.
    pub(super) fn follow(&self, record: &Record<'_>) -> std::result::Result<(), &'static str> {
        if !self.own {
            return Ok(());
        }
        if let Some((id, name)) = created(record)? {
            self.names.insert(id, name);
        }
        if record.keyspace == CATALOG
            && record.change == Change::Delete
            && let Ok(name) = std::str::from_utf8(record.key)
        {
            self.names.forget_one(name);
        }
        Ok(())
    }
}

/// The number and the name of the keyspace that a record creates, or whose entry it copies.
fn created<'a>(record: &Record<'a>) -> std::result::Result<Option<(u32, &'a str)>, &'static str> {
    match record.change {
        Change::Put { value, .. } if record.keyspace == CATALOG && !record.key.is_empty() => {
            let number = number(value).ok_or("the number of a keyspace is invalid")?;
            Ok(Some((number, name_of(record)?)))
        }
        _ => Ok(None),
    }
}

/// The name of the keyspace that a record of the catalog is about.
pub(super) fn name_of<'a>(record: &Record<'a>) -> std::result::Result<&'a str, &'static str> {
    std::str::from_utf8(record.key).map_err(|_| "a keyspace's name is invalid")
}
