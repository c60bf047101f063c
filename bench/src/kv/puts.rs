//! Callers that put values, or write batches of them, and wait until they are durable.

use anyhow::{Result, ensure};
use esker_bench::records::payload::header_of;

use super::batched;
use super::entries::fill;
use super::keys::{Key, key_of_value};
use super::store::{Kind, Store};
use super::stores::{self, esker_store};
use crate::callers::Member;
use crate::job::Job;
use crate::peer::{Caller, Log, Peer, RecordVisitor};

/// A store as something that callers append to: what they append are values.
pub fn peer(kind: &Kind) -> Peer {
    Peer { package: kind.package, note: kind.puts, pipelining: "", open, read_all }
}

/// Opens the store of a job for its callers.
fn open(job: &Job) -> Result<Box<dyn Log>> {
    let kind = stores::find(&job.system)?;
    if job.system == "esker" {
        return esker_store::open_for_tasks(job);
    }
    let store = (kind.open)(job)?;
    if kind.batched {
        return Ok(Box::new(batched::BatchedPuts::new(store)?));
    }
    Ok(Box::new(Puts { store, batch: job.batch as usize }))
}

/// The callers are threads.
struct Puts {
    store: Box<dyn Store>,
    batch: usize,
}

impl Log for Puts {
    fn caller(&self, _writer: u32) -> Result<Box<dyn Caller + '_>> {
        Ok(Box::new(Blocking { store: &*self.store, batch: vec![Default::default(); self.batch] }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.close()
    }
}

struct Blocking<'a> {
    store: &'a dyn Store,
    batch: Vec<(Key, Vec<u8>)>,
}

impl Caller for Blocking<'_> {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.store.put(&key_of_value(true, record)?, record)
    }

    fn append_next(&mut self, member: &mut Member) -> Result<()> {
        if self.batch.len() == 1 {
            return self.append(member.next());
        }
        fill(&mut self.batch, member)?;
        self.store.write(&self.batch)
    }
}

/// Opens the store again and hands over all values in the order of caller and count.
fn read_all(job: &Job, see: &mut RecordVisitor<'_>) -> Result<()> {
    let kind = stores::find(&job.system)?;
    let store = (kind.open)(job)?;
    let (mut order, mut values) = (Vec::new(), Vec::new());
    store.reader()?.all(&mut |key, value| {
        ensure!(key == key_of_value(true, value)?, "a value was read back of another key");
        order.push((header_of(value), values.len(), value.len()));
        values.extend_from_slice(value);
        Ok(())
    })?;
    order.sort_unstable();
    for (_, begin, len) in order {
        see(&values[begin..begin + len])?;
    }
    store.close()
}
