//! `raft-engine`: each caller is a Raft group of its own, each record an entry of it.

use ::raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};
use anyhow::{Context, Result};
use esker_bench::records::payload::header_of;
use protobuf::well_known_types::BytesValue;

use crate::callers::Records;
use crate::job::Job;
use crate::peer::{Caller, Log, Peer, RecordVisitor};

/// Entries that are fetched together.
const FETCH_ENTRIES: u64 = 256;

pub const PEER: Peer = Peer {
    package: "raft-engine",
    note: "its own group commit; a Raft group for each caller; without compression, as the others",
    pipelining: "no sync but at the last record, because `Engine::sync` of 0.4 returns without one",
    open,
    read_all,
};

/// An entry is the record; its index is the writer's count, from 1.
struct Record;

impl MessageExt for Record {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        header_of(&entry.value).map_or(0, |(_, count)| count + 1)
    }
}

struct RaftEngine(Engine);

fn engine(job: &Job) -> Result<Engine> {
    Ok(Engine::open(Config {
        dir: job.log().display().to_string(),
        batch_compression_threshold: ReadableSize(0),
        ..Config::default()
    })?)
}

fn open(job: &Job) -> Result<Box<dyn Log>> {
    Ok(Box::new(RaftEngine(engine(job)?)))
}

impl Log for RaftEngine {
    fn caller(&self, writer: u32) -> Result<Box<dyn Caller + '_>> {
        Ok(Box::new(Group::new(&self.0, writer)))
    }

    fn pipeline(&self, records: &mut Records<'_>) -> Result<()> {
        let mut group = Group::new(&self.0, 0);
        while let Some(record) = records.next() {
            group.fill(record)?;
            group.engine.write(&mut group.batch, records.is_at_end())?;
        }
        Ok(())
    }

    fn append_batch(&self, records: &[&[u8]]) -> Result<()> {
        let mut group = Group::new(&self.0, 0);
        for record in records {
            group.fill(record)?;
        }
        self.0.write(&mut group.batch, true)?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Group<'a> {
    engine: &'a Engine,
    region: u64,
    batch: LogBatch,
    entry: [BytesValue; 1],
}

impl<'a> Group<'a> {
    fn new(engine: &'a Engine, writer: u32) -> Self {
        let (batch, entry) = (LogBatch::default(), [BytesValue::new()]);
        Self { engine, region: u64::from(writer) + 1, batch, entry }
    }

    fn fill(&mut self, record: &[u8]) -> Result<()> {
        let [entry] = &mut self.entry;
        entry.value.clear();
        entry.value.extend_from_slice(record);
        Ok(self.batch.add_entries::<Record>(self.region, &self.entry)?)
    }
}

impl Caller for Group<'_> {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.fill(record)?;
        self.engine.write(&mut self.batch, true)?;
        Ok(())
    }
}

fn read_all(job: &Job, see: &mut RecordVisitor<'_>) -> Result<()> {
    let engine = engine(job)?;
    let mut entries = Vec::new();
    for region in engine.raft_groups() {
        let first = engine.first_index(region).context("a group without entries")?;
        let end = engine.last_index(region).context("a group without entries")? + 1;
        for begin in (first..end).step_by(FETCH_ENTRIES as usize) {
            entries.clear();
            let end = end.min(begin + FETCH_ENTRIES);
            engine.fetch_entries_to::<Record>(region, begin, end, None, &mut entries)?;
            for entry in &entries {
                see(&entry.value)?;
            }
        }
    }
    Ok(())
}
