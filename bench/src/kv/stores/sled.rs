//! `sled`: default options; a flush where puts are durable.

use ::sled::{Batch, Db};
use anyhow::{Context, Result};

use crate::kv::entries::Entries;
use crate::kv::keys::Key;
use crate::kv::store::{EntryVisitor, Kind, Reader, Store, ValueVisitor};

pub const KIND: Kind = Kind {
    package: "sled",
    // On Linux its flush is `sync_file_range`, which does not flush the cache of the device.
    durable: false,
    batched: false,
    puts: "default options; `insert` or `apply_batch`, then `flush`, which calls `sync_file_range`: \
           it flushes neither the metadata of the file nor the cache of the device; callers are \
           threads",
    loads: "default options; `flush` at the end",
    reads: "default options: a cache of 1 GB",
    open: |job| Ok(Box::new(Sled(::sled::open(job.log())?))),
};

struct Sled(Db);

impl Store for Sled {
    fn put(&self, key: &Key, value: &[u8]) -> Result<()> {
        self.0.insert(key, value)?;
        self.0.flush()?;
        Ok(())
    }

    fn write(&self, entries: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut batch = Batch::default();
        for (key, value) in entries {
            batch.insert(key, &value[..]);
        }
        self.0.apply_batch(batch)?;
        self.0.flush()?;
        Ok(())
    }

    fn load(&self, entries: &mut Entries<'_>) -> Result<()> {
        while let Some((key, value)) = entries.next() {
            self.0.insert(key, value)?;
        }
        self.0.flush()?;
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(SledReader(&self.0)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.0.flush()?;
        drop(self);
        Ok(())
    }
}

struct SledReader<'a>(&'a Db);

impl Reader for SledReader<'_> {
    fn get(&self, key: &Key, see: &mut ValueVisitor<'_>) -> Result<()> {
        see(&self.0.get(key)?.context("a key is not there")?)
    }

    fn scan(&self, see: &mut EntryVisitor<'_>) -> Result<()> {
        for entry in self.0.iter() {
            let (key, value) = entry?;
            see(&key, &value)?;
        }
        Ok(())
    }
}
