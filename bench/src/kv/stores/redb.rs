//! `redb`: default options; a write transaction for each durable put.

use ::redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};
use anyhow::{Context, Result};

use crate::job::Job;
use crate::kv::entries::Entries;
use crate::kv::keys::Key;
use crate::kv::store::{EntryVisitor, Kind, Reader, Store, ValueVisitor};

const TABLE: TableDefinition<'_, &Key, &[u8]> = TableDefinition::new("items");

pub const KIND: Kind = Kind {
    package: "redb",
    durable: true,
    batched: false,
    puts: "default options (`Durability::Immediate`); a write transaction for each put or batch; \
           callers are threads",
    loads: "default options; all puts in one write transaction",
    reads: "default options: a cache of 1 GiB; each caller has one read transaction",
    open: |job| Ok(Box::new(open(job)?)),
};

struct Redb(Database);

fn open(job: &Job) -> Result<Redb> {
    Ok(Redb(Database::create(job.log())?))
}

impl Store for Redb {
    fn put(&self, key: &Key, value: &[u8]) -> Result<()> {
        let transaction = self.0.begin_write()?;
        transaction.open_table(TABLE)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn write(&self, entries: &[(Key, Vec<u8>)]) -> Result<()> {
        let transaction = self.0.begin_write()?;
        let mut table = transaction.open_table(TABLE)?;
        for (key, value) in entries {
            table.insert(key, &value[..])?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn load(&self, entries: &mut Entries<'_>) -> Result<()> {
        let transaction = self.0.begin_write()?;
        let mut table = transaction.open_table(TABLE)?;
        while let Some((key, value)) = entries.next() {
            table.insert(&key, value)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(RedbReader(self.0.begin_read()?.open_table(TABLE)?)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self);
        Ok(())
    }
}

struct RedbReader(ReadOnlyTable<&'static Key, &'static [u8]>);

impl Reader for RedbReader {
    fn get(&self, key: &Key, see: &mut ValueVisitor<'_>) -> Result<()> {
        see(self.0.get(key)?.context("a key is not there")?.value())
    }

    fn scan(&self, see: &mut EntryVisitor<'_>) -> Result<()> {
        for entry in self.0.iter()? {
            let (key, value) = entry?;
            see(key.value(), value.value())?;
        }
        Ok(())
    }
}
