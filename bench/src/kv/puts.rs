//! Callers that put values, or write batches of them, and wait until they are durable.

use anyhow::{Result, bail, ensure};

use super::batched;
use super::keys::{Key, key_of_value};
use super::store::Store;
use super::stores::{self, esker};
use crate::callers::{Member, Records};
use crate::job::Job;
use crate::payload::head_of;
use crate::peers::{Caller, Log, See};

/// Opens the store of a job for its callers.
pub fn open(job: &Job) -> Result<Box<dyn Log>> {
    let kind = stores::find(&job.system)?;
    if job.system == "esker" {
        return esker::open_for_tasks(job);
    }
    let store = (kind.open)(job)?;
    if kind.batched {
        return Ok(Box::new(batched::Batched::new(store)?));
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

    fn pipeline(&self, _records: &mut Records<'_>) -> Result<()> {
        bail!("nothing is pipelined")
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

/// A batch of what a caller puts next.
pub fn fill(batch: &mut [(Key, Vec<u8>)], member: &mut Member) -> Result<()> {
    for (key, value) in batch {
        let record = member.next();
        *key = key_of_value(true, record)?;
        value.clear();
        value.extend_from_slice(record);
    }
    Ok(())
}

/// Opens the store again and hands over all values in the order of caller and count.
pub fn read_all(job: &Job, see: &mut See<'_>) -> Result<()> {
    let kind = stores::find(&job.system)?;
    let store = (kind.open)(job)?;
    let (mut order, mut values) = (Vec::new(), Vec::new());
    store.reader()?.all(&mut |key, value| {
        ensure!(key == key_of_value(true, value)?, "a value was read back of another key");
        order.push((head_of(value), values.len(), value.len()));
        values.extend_from_slice(value);
        Ok(())
    })?;
    order.sort_unstable();
    for (_, begin, len) in order {
        see(&values[begin..begin + len])?;
    }
    store.close()
}
