//! `okaywal`: one entry for each record, committed by its own group commit.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};

use ::okaywal::{
    Configuration, Entry, EntryId, LogManager, LogVoid, ReadChunkResult, SegmentReader,
    WriteAheadLog,
};
use anyhow::{Result, anyhow};

use crate::callers::Records;
use crate::job::{Job, Shape};
use crate::peer::{Caller, Log, Peer, RecordVisitor};

/// It writes this much ahead when it opens, before anything is timed, as its recycled files would
/// be. Only where it does not spare the timed part a good deal of the bytes.
const PREALLOCATED_BYTES: u32 = 256 << 20;
const SMALL_FILE_BYTES: u32 = 4096;
const QUEUE_RECORDS: usize = 1024;

pub const PEER: Peer = Peer {
    package: "okaywal",
    note: "its own group commit; without checkpoints, so that everything can be read back; where \
           callers wait for small records, 256 MiB are written ahead",
    pipelining: "every entry is synced, so that all records are chunks of one entry",
    open,
    read_all,
};

fn configuration(job: &Job) -> Configuration {
    let configuration = Configuration::default_for(job.log()).checkpoint_after_bytes(u64::MAX);
    if job.shape == Shape::Callers && job.most <= SMALL_FILE_BYTES {
        configuration.preallocate_bytes(PREALLOCATED_BYTES)
    } else {
        configuration
    }
}

struct OkayWal(WriteAheadLog);

fn open(job: &Job) -> Result<Box<dyn Log>> {
    Ok(Box::new(OkayWal(configuration(job).open(LogVoid)?)))
}

impl Log for OkayWal {
    fn caller(&self, _writer: u32) -> Result<Box<dyn Caller + '_>> {
        Ok(Box::new(Entries(&self.0)))
    }

    fn pipeline(&self, records: &mut Records<'_>) -> Result<()> {
        let mut entry = self.0.begin_entry()?;
        while let Some(record) = records.next() {
            entry.write_chunk(record)?;
        }
        entry.commit()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.shutdown()?)
    }
}

struct Entries<'a>(&'a WriteAheadLog);

impl Caller for Entries<'_> {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        let mut entry = self.0.begin_entry()?;
        entry.write_chunk(record)?;
        entry.commit()?;
        Ok(())
    }
}

/// Sends on every chunk that recovery finds.
#[derive(Debug)]
struct RecoveryReader(SyncSender<Vec<u8>>);

impl LogManager for RecoveryReader {
    fn recover(&mut self, entry: &mut Entry<'_>) -> io::Result<()> {
        let damaged = || io::Error::other("the checksum of a chunk does not match");
        while let ReadChunkResult::Chunk(mut chunk) = entry.read_chunk()? {
            let record = chunk.read_all()?;
            if !chunk.check_crc()? {
                return Err(damaged());
            }
            self.0.send(record).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn checkpoint_to(
        &mut self,
        _last: EntryId,
        _entries: &mut SegmentReader,
        _log: &WriteAheadLog,
    ) -> io::Result<()> {
        Ok(())
    }
}

fn read_all(job: &Job, see: &mut RecordVisitor<'_>) -> Result<()> {
    let (sender, receiver) = sync_channel(QUEUE_RECORDS);
    let configuration = configuration(job);
    let opening = std::thread::spawn(move || configuration.open(RecoveryReader(sender)));
    // Recovery ends early when the receiver is gone, and the log keeps the sender when it ends.
    let mut outcome = Ok(());
    loop {
        match receiver.try_recv() {
            Ok(record) => outcome = outcome.and_then(|()| see(&record)),
            Err(_) if opening.is_finished() => break,
            Err(_) => std::thread::yield_now(),
        }
    }
    while let Ok(record) = receiver.try_recv() {
        outcome = outcome.and_then(|()| see(&record));
    }
    let opened = opening.join().map_err(|_| anyhow!("recovery panicked"))?;
    outcome?;
    Ok(opened?.shutdown()?)
}
