//! `surrealkv` 0.9, which has an index of all keys in memory: default options, and
//! `Durability::Immediate` where puts are durable.

use std::cell::RefCell;

use ::surrealkv::{self as kv, Durability, Mode, Options, Transaction};
use anyhow::{Context, Result};

use crate::job::Job;
use crate::kv::entries::Entries;
use crate::kv::keys::Key;
use crate::kv::store::{EntryVisitor, Kind, Reader, Store, ValueVisitor};

/// Puts of one transaction when it loads.
const LOAD_PUTS: u64 = 1000;

pub const KIND: Kind = Kind {
    package: "surrealkv",
    durable: true,
    batched: false,
    puts: "default options, `Durability::Immediate`; a transaction for each put or batch; callers \
           are threads",
    loads: "default options; transactions of 1,000 puts with `Durability::Eventual`, the last one \
            with `Immediate`",
    reads: "default options: an index of all keys in memory, a cache of 100,000 values in front of \
            the page cache; each caller has one read transaction",
    open: |job| Ok(Box::new(open(job)?)),
};

struct Surreal(kv::Store);

fn open(job: &Job) -> Result<Surreal> {
    let mut options = Options::new();
    options.dir = job.log();
    Ok(Surreal(kv::Store::new(options)?))
}

impl Surreal {
    fn begin(&self, durability: Durability) -> Result<Transaction> {
        let mut transaction = self.0.begin_with_mode(Mode::WriteOnly)?;
        transaction.set_durability(durability);
        Ok(transaction)
    }
}

impl Store for Surreal {
    fn put(&self, key: &Key, value: &[u8]) -> Result<()> {
        let mut transaction = self.begin(Durability::Immediate)?;
        transaction.set(key, value)?;
        Ok(transaction.commit()?)
    }

    fn write(&self, entries: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut transaction = self.begin(Durability::Immediate)?;
        for (key, value) in entries {
            transaction.set(key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn load(&self, entries: &mut Entries<'_>) -> Result<()> {
        let mut transaction = self.begin(Durability::Eventual)?;
        let mut puts = 0;
        while let Some((key, value)) = entries.next() {
            transaction.set(&key, value)?;
            puts += 1;
            // Not the last one.
            if puts >= LOAD_PUTS && !entries.is_at_end() {
                transaction.commit()?;
                transaction = self.begin(Durability::Eventual)?;
                puts = 0;
            }
        }
        transaction.set_durability(Durability::Immediate);
        Ok(transaction.commit()?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(SurrealReader(RefCell::new(self.0.begin_with_mode(Mode::ReadOnly)?))))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}

struct SurrealReader(RefCell<Transaction>);

impl Reader for SurrealReader {
    fn get(&self, key: &Key, see: &mut ValueVisitor<'_>) -> Result<()> {
        see(&self.0.borrow_mut().get(key)?.context("a key is not there")?)
    }

    fn scan(&self, see: &mut EntryVisitor<'_>) -> Result<()> {
        for entry in self.0.borrow_mut().scan(.., None) {
            let (key, value, _) = entry?;
            see(key, &value)?;
        }
        Ok(())
    }
}
