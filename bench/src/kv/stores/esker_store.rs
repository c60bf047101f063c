//! Esker, through the facade and with default options: callers as async tasks, and as threads.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use esker::kv::{self, Action, Batch, Keyspace};
use esker_bench::load::slice::Until;
use esker_bench::load::tasks;
use esker_bench::measure::per_thread::PerThread;
use tokio::runtime::Runtime;

use crate::awaited_log::{AwaitedLog, run_tasks};
use crate::callers::Member;
use crate::job::Job;
use crate::kv::entries::{Entries, fill};
use crate::kv::keys::{Key, key_of_value};
use crate::kv::store::{EntryVisitor, GroupVisitor, Kind, Reader, Store, ValueVisitor};
use crate::peer::{Caller, Log};

pub const AS_TASKS: Kind = Kind {
    package: "esker",
    durable: true,
    batched: false,
    puts: "default options; callers are async tasks on two threads",
    loads: "default options, so that commits go on all the time; the caller is a thread, does not \
            wait for its puts, and calls `sync` at the end",
    reads: "default options; callers are threads; the value cache has 256 MiB, and all values that \
            were put are in it until the store is opened again",
    open: |job| Ok(Box::new(open(job)?)),
};

pub const AS_THREADS: Kind =
    Kind { puts: "default options; callers are threads, as those of the peers", ..AS_TASKS };

#[derive(Clone)]
struct Esker {
    store: kv::Store,
    keys: Keyspace,
}

fn open(job: &Job) -> Result<Esker> {
    let store = kv::Store::open(job.log())?;
    let keys = store.keyspace();
    Ok(Esker { store, keys })
}

impl Esker {
    fn batch(&self, entries: &[(Key, Vec<u8>)]) -> Result<Batch> {
        let mut batch = Batch::new();
        for (key, value) in entries {
            batch.put(&self.keys, key, value)?;
        }
        Ok(batch)
    }
}

impl Store for Esker {
    fn put(&self, key: &Key, value: &[u8]) -> Result<()> {
        self.keys.put(key, value)?.blocking_wait()?;
        Ok(())
    }

    fn write(&self, entries: &[(Key, Vec<u8>)]) -> Result<()> {
        self.store.write(&self.batch(entries)?)?.blocking_wait()?;
        Ok(())
    }

    fn load(&self, entries: &mut Entries<'_>) -> Result<()> {
        while let Some((key, value)) = entries.next() {
            drop(self.keys.put(key, value)?);
        }
        Ok(self.store.sync()?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(EskerReader(self)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.store.close()?)
    }
}

struct EskerReader<'a>(&'a Esker);

impl Reader for EskerReader<'_> {
    fn get(&self, key: &Key, see: &mut ValueVisitor<'_>) -> Result<()> {
        see(&self.0.keys.get(key)?.context("a key is not there")?)
    }

    fn get_many(&self, keys: &[Key], see: &mut GroupVisitor<'_>) -> Result<bool> {
        let values = self.0.keys.get_many(keys)?;
        ensure!(values.len() == keys.len(), "not a value for each key");
        for (at, value) in values.iter().enumerate() {
            see(at, value.as_ref().context("a key is not there")?)?;
        }
        Ok(true)
    }

    fn scan(&self, see: &mut EntryVisitor<'_>) -> Result<()> {
        for entry in self.0.keys.scan(..)? {
            let (key, value) = entry?;
            see(&key, &value)?;
        }
        Ok(())
    }

    /// Visits the keys in the order of the writes: a scan in the order of the keys reads a block
    /// for each value that is not cached. Every key must be in the index, too.
    fn all(&self, see: &mut EntryVisitor<'_>) -> Result<()> {
        let Esker { store, keys } = self.0;
        let mut watch = store.watch(0)?;
        let mut seen = 0;
        while seen < keys.len() {
            for change in &watch.blocking_next()? {
                let Action::Put { key, value } = change.action else { continue };
                ensure!(keys.contains_key(key)?, "a key that was written is not in the index");
                see(key, value)?;
                seen += 1;
            }
        }
        ensure!(seen == keys.len(), "{seen} writes were read back of {} keys", keys.len());
        Ok(())
    }
}

/// Opens it for callers that are async tasks.
pub fn open_for_tasks(job: &Job) -> Result<Box<dyn Log>> {
    let tasks = Tasks { esker: open(job)?, batch: job.batch as usize };
    Ok(Box::new(WithRuntime { tasks, runtime: tasks::runtime()? }))
}

#[derive(Clone)]
struct Tasks {
    esker: Esker,
    batch: usize,
}

impl AwaitedLog for Tasks {
    async fn append(&self, record: &[u8]) -> Result<()> {
        self.esker.keys.put_async(key_of_value(true, record)?, record).await?.await?;
        Ok(())
    }

    async fn append_next(&self, member: &mut Member) -> Result<()> {
        if self.batch == 1 {
            return self.append(member.next()).await;
        }
        let mut entries = vec![Default::default(); self.batch];
        fill(&mut entries, member)?;
        self.esker.store.write_async(&self.esker.batch(&entries)?).await?.await?;
        Ok(())
    }
}

struct WithRuntime {
    tasks: Tasks,
    runtime: Runtime,
}

impl Log for WithRuntime {
    fn caller(&self, _writer: u32) -> Result<Box<dyn Caller + '_>> {
        bail!("its callers are tasks")
    }

    fn run_tasks(
        &self,
        members: &mut Vec<Member>,
        until: Until,
        times: &PerThread,
    ) -> Option<Result<Duration>> {
        Some(run_tasks(&self.tasks, &self.runtime, members, until, times))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.tasks.esker.store.close()?)
    }
}
