//! `fjall`: default options; the journal is synced where puts are durable.

use std::time::Duration;

use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use anyhow::{Context, Result};

use crate::job::Job;
use crate::kv::entries::Entries;
use crate::kv::keys::Key;
use crate::kv::store::{EntryVisitor, Kind, Reader, Store, ValueVisitor};

/// The store counts as idle after this many checks in a row.
const IDLE_CHECKS: u32 = 20;
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// The most checks: more than compactions of this size need.
const CHECKS_MAX: u32 = 3000;

pub const KIND: Kind = Kind {
    package: "fjall",
    durable: true,
    batched: false,
    puts: "default options; `insert`, then `persist(SyncData)`; a batch has this `durability`; callers \
           are threads",
    loads: "default options, so that an insert goes to the page cache; `persist(SyncData)` at the end",
    reads: "default options: a block cache of 32 MiB in front of the page cache, Bloom filters; \
            compactions are over before the reads",
    open: |job| Ok(Box::new(open(job)?)),
};

struct Fjall {
    items: Keyspace,
    db: Database,
}

fn open(job: &Job) -> Result<Fjall> {
    let db = Database::builder(job.log()).open()?;
    let items = db.keyspace("items", KeyspaceCreateOptions::default)?;
    Ok(Fjall { items, db })
}

impl Store for Fjall {
    fn put(&self, key: &Key, value: &[u8]) -> Result<()> {
        self.items.insert(&key[..], value)?;
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    fn write(&self, entries: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut batch = self.db.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in entries {
            batch.insert(&self.items, &key[..], &value[..]);
        }
        Ok(batch.commit()?)
    }

    fn load(&self, entries: &mut Entries<'_>) -> Result<()> {
        while let Some((key, value)) = entries.next() {
            self.items.insert(&key[..], value)?;
        }
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    fn await_compactions(&self) -> Result<()> {
        let mut idle = 0;
        for _ in 0..CHECKS_MAX {
            let is_busy = self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0;
            idle = if is_busy { 0 } else { idle + 1 };
            if idle == IDLE_CHECKS {
                break;
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(FjallReader(&self.items)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.persist(PersistMode::SyncAll)?;
        drop(self);
        Ok(())
    }
}

struct FjallReader<'a>(&'a Keyspace);

impl Reader for FjallReader<'_> {
    fn get(&self, key: &Key, see: &mut ValueVisitor<'_>) -> Result<()> {
        see(&self.0.get(key)?.context("a key is not there")?)
    }

    fn scan(&self, see: &mut EntryVisitor<'_>) -> Result<()> {
        for entry in self.0.iter() {
            let (key, value) = entry.into_inner()?;
            see(&key, &value)?;
        }
        Ok(())
    }
}
