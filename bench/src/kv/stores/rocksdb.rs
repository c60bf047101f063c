//! `rocksdb`: default options; `sync` of the write options where puts are durable.

use ::rocksdb::{DB, Options, ReadOptions, WaitForCompactOptions, WriteBatch, WriteOptions};
use anyhow::{Context, Result, ensure};

use crate::job::Job;
use crate::kv::entries::Entries;
use crate::kv::keys::Key;
use crate::kv::store::{EntryVisitor, GroupVisitor, Kind, Reader, Store, ValueVisitor};

const NAME: &str = "default";

pub const KIND: Kind = Kind {
    package: "rocksdb",
    durable: true,
    batched: false,
    puts: "default options, `WriteOptions::set_sync(true)`; its own group commit; callers are threads",
    loads: "default options; puts with the write-ahead log and without sync, `flush_wal(true)` at \
            the end",
    reads: "default options: a block cache of 32 MiB in front of the page cache, no Bloom filters, \
            no compression; compactions are over before the reads",
    open: |job| Ok(Box::new(open(job)?)),
};

struct Rocks(DB);

fn open(job: &Job) -> Result<Rocks> {
    let mut options = Options::default();
    options.create_if_missing(true);
    // The name makes the handle available that the call for several keys asks for.
    Ok(Rocks(DB::open_cf(&options, job.log(), [NAME])?))
}

fn durable() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

impl Store for Rocks {
    fn put(&self, key: &Key, value: &[u8]) -> Result<()> {
        Ok(self.0.put_opt(key, value, &durable())?)
    }

    fn write(&self, entries: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in entries {
            batch.put(key, value);
        }
        Ok(self.0.write_opt(batch, &durable())?)
    }

    fn load(&self, entries: &mut Entries<'_>) -> Result<()> {
        let options = WriteOptions::default();
        while let Some((key, value)) = entries.next() {
            self.0.put_opt(key, value, &options)?;
        }
        Ok(self.0.flush_wal(true)?)
    }

    fn await_compactions(&self) -> Result<()> {
        Ok(self.0.wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(RocksReader { db: &self.0, options: ReadOptions::default() }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        // Closing leaves what is in memtables to the write-ahead log.
        self.0.flush_wal(true)?;
        drop(self);
        Ok(())
    }
}

struct RocksReader<'a> {
    db: &'a DB,
    options: ReadOptions,
}

impl Reader for RocksReader<'_> {
    fn get(&self, key: &Key, see: &mut ValueVisitor<'_>) -> Result<()> {
        see(&self.db.get_pinned_opt(key, &self.options)?.context("a key is not there")?)
    }

    fn get_many(&self, keys: &[Key], see: &mut GroupVisitor<'_>) -> Result<bool> {
        let family = self.db.cf_handle(NAME).context("no column family")?;
        let values = self.db.batched_multi_get_cf_opt(&family, keys, false, &self.options);
        ensure!(values.len() == keys.len(), "not a value for each key");
        for (at, value) in values.into_iter().enumerate() {
            see(at, &value?.context("a key is not there")?)?;
        }
        Ok(true)
    }

    fn scan(&self, see: &mut EntryVisitor<'_>) -> Result<()> {
        let mut entries = self.db.raw_iterator();
        entries.seek_to_first();
        while let Some((key, value)) = entries.item() {
            see(key, value)?;
            entries.next();
        }
        Ok(entries.status()?)
    }
}
