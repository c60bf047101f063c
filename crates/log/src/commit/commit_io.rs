//! Prepares the jobs of the core, in order, and executes their I/O.
//!
//! Each log has one committer, which passes from the thread that prepares a commit to the one that
//! prepares the next. It carries what the next unit needs from the last one: the file and the
//! checksum to chain to. The I/O is a [`CommitIo`] and does not need the committer, so the next
//! commit is prepared while this one is written.
//!
//! # The crash argument of a commit
//!
//! Each unit is written to blocks that hold no durable data. The core assigns each range once, and
//! after a crash recovery never writes past an old end of the log (see `recovery`).
//!
//! The unit's header, with a checksum over the whole unit, is part of the same write. Whatever part
//! of the write survives a crash, either the whole unit is there or its checksum does not match.
//! A write may carry several units. Each names the one before it, so one that survived without its
//! predecessor does not count.
//!
//! A unit is durable when its O_DSYNC write, or a sync that began after its write had returned, has
//! returned for it and for every unit before it. Only then does the watermark advance and a ticket
//! resolve. Of the writes of a group (see `core::grouping`) any subset may survive, as of writes in
//! flight.
//!
//! The durable lower bound in a header is the durable watermark from before the write was
//! submitted, never more. Under `OsBuffered` the watermark page, stored and synced before a ticket
//! resolves, records the durable end that no unit records (see `store::watermark_page`).
//!
//! So a crash may leave any subset of the units in flight. A unit after a missing one carries no
//! durable lower bound that covers it. Recovery cuts both.

use std::sync::Arc;
use std::time::Instant;

use esker_disk::planted::{self, Bug, is_planted};
use esker_disk::{AlignedBuf, File, write_all_at};
use parking_lot::RwLock;

use crate::base::error::{Error, Result};
use crate::base::log_end::Mark;
use crate::base::options::Policy;
use crate::commit::committer::Committer;
use crate::commit::core::{Job, Unit, Units};
use crate::commit::write_half::WriteHalf;
use crate::format::{BLOCK_BYTES, SegmentHeader, UnitHeader, UnitKind};
use crate::runtime::backoff::Backoff;
use crate::staging::buffer::close_unit;
use crate::store::paths;
use crate::store::segment_table::{Segment, State};

/// A job, with everything that its I/O needs.
#[derive(Debug)]
pub(crate) struct CommitIo {
    job: Job,
    file: Arc<dyn File>,
    /// Other files to sync, besides the one that is written.
    unsynced: Vec<Arc<dyn File>>,
}

impl CommitIo {
    /// Does the I/O.
    pub(crate) fn execute(&self, log: &WriteHalf) -> Result<()> {
        let mut start = Instant::now();
        let sync = match &self.job {
            Job::Write { units, sync } => {
                let range = units.range();
                let bytes = units.first.buffer.bytes(range.clone());
                write_all_at(&*self.file, bytes, u64::from(range.start))?;
                log.counters.wrote(bytes.len() as u64);
                *sync
            }
            Job::Sync { .. } => true,
        };
        if sync {
            let is_durable = log.mode.dsync && matches!(self.job, Job::Write { .. });
            if !is_durable {
                // The write is no part of the syncs after it.
                start = Instant::now();
                for file in &self.unsynced {
                    if !is_planted(Bug::SyncSkippedOnRotation) {
                        sync_file(file)?;
                    }
                    start = log.counters.synced(start);
                }
                sync_file(&self.file)?;
            }
            log.counters.synced(start);
            if log.options.policy == Policy::OsBuffered {
                // One sync may make many units durable, and no unit records that. Such commits are
                // in flight one at a time, so everything before this mark is durable, too.
                log.watermark_page.lock().store_durably(self.job.mark())?;
            }
        }
        Ok(())
    }

    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// The units that it wrote.
    pub(crate) fn into_units(self) -> Option<Units> {
        match self.job {
            Job::Write { units, .. } => Some(units),
            Job::Sync { .. } => None,
        }
    }
}

impl Committer {
    /// Prepares a job for its I/O.
    pub(crate) fn prepare(
        &mut self,
        log: &WriteHalf,
        mut job: Job,
        durable: Mark,
    ) -> Result<CommitIo> {
        let (sync, is_durable) = match &mut job {
            Job::Write { units, sync } => {
                self.complete(log, units, durable)?;
                (*sync, *sync)
            }
            Job::Sync { .. } => (true, false),
        };
        let unsynced = if sync { std::mem::take(&mut self.unsynced) } else { Vec::new() };
        let file = match log.mode.dsync && !is_durable {
            true => self.grouped_file(&*log.dir, log.mode),
            false => Arc::clone(&self.file),
        };
        Ok(CommitIo { job, file, unsynced })
    }

    /// Completes units with their headers and adds them to their segment. Readers see them only
    /// once the durable watermark covers them.
    fn complete(&mut self, log: &WriteHalf, units: &mut Units, durable: Mark) -> Result<()> {
        let time_ms = self.unit_time(log);
        if units.first.buffer.segment != self.segment.number() {
            self.rotate(log, &units.first, durable, time_ms)?;
        }
        units.iter().for_each(|unit| self.put_header(log, unit, durable, time_ms));
        let last = units.last();
        log.space.preallocator().wait_clear(last.buffer.segment, &units.range());

        let last_seq = last.last_seq;
        let mut state = self.segment.state.write();
        state.end = last.range.end;
        state.last_seq = last_seq;
        state.chain = self.chain;
        state.records += units.iter().map(|unit| u64::from(unit.records)).sum::<u64>();
        state.add_payload(units.iter().map(|unit| unit.payload).sum());
        state.time_ms = time_ms;
        state.index.append(&mut units.index);
        drop(state);
        log.segments.lock_ages().committed(last_seq, || log.engine.now());
        Ok(())
    }

    /// The time of the next unit: that of the wall clock, and never before the last unit, because
    /// readers search for a time. Where nothing is left of that unit, its time does not count: it
    /// may have been ahead.
    fn unit_time(&self, log: &WriteHalf) -> u64 {
        let now = log.engine.wall_ms();
        let last = self.segment.state.read();
        match last.last_seq > log.segments.trim_point().low().seq {
            true => now.max(last.time_ms),
            false => now,
        }
    }

    /// Writes the header of a unit, and chains the next one to it.
    fn put_header(&mut self, log: &WriteHalf, unit: &Unit, durable: Mark, time_ms: u64) {
        let header = UnitHeader {
            kind: UnitKind::Data,
            used: unit.used,
            records: unit.records,
            digest: wait_for_appenders(log, unit),
            prev_seq: unit.prev_seq,
            last_seq: unit.last_seq,
            durable_bound: durable.seq,
            session: self.session,
            time_ms,
            chain: self.chain,
        };
        let (head, crc) = header.to_bytes(unit.salt, unit.range.start);
        close_unit(&unit.buffer, &unit.range, unit.used, &head);
        self.chain = crc;
    }

    /// Continues in the next segment. Its header, written first, records where this one ends.
    fn rotate(&mut self, log: &WriteHalf, unit: &Unit, durable: Mark, time_ms: u64) -> Result<()> {
        let number = unit.buffer.segment;
        let header = SegmentHeader {
            log: log.id,
            segment: number,
            session: self.session,
            base: unit.buffer.base,
            prev_segment: self.segment.number(),
            prev_seq: unit.prev_seq,
            durable_bound: durable.seq,
            time_ms,
            chain: self.chain,
            recovered: false,
            first_chain: 0,
        };
        let Some(ready) = log.space.preallocator().take(number) else {
            let invariant = "units are placed only in segments that were created";
            return Err(Error::Internal { invariant });
        };
        let full = self.segment.header.base + u64::from(self.segment.state.read().end);
        if full != unit.buffer.base {
            return Err(Error::Internal { invariant: "a segment begins where the last one ends" });
        }
        let (block, header_crc) = header.to_block();
        let mut aligned = AlignedBuf::new(block.len());
        aligned.copy_from_slice(&block);
        write_all_at(&*ready.writer, &aligned, 0)?;

        self.segment.state.write().full = true;
        let old = std::mem::replace(&mut self.file, ready.writer);
        // A group ends with its segment, so its sync was handed out.
        self.grouped = None;
        if !log.mode.dsync {
            self.unsynced.push(old);
        }
        self.chain = header_crc;
        let capacity = (log.options.segment_size / log.options.index_bytes) as usize + 8;
        self.segment = Arc::new(Segment {
            header,
            salt: header.salt(),
            path: log.dir.path_of(&paths::segment(number)),
            reader: ready.reader,
            state: RwLock::new(State {
                end: BLOCK_BYTES,
                last_seq: unit.prev_seq,
                chain: header_crc,
                payload: Some(0),
                time_ms,
                index: Vec::with_capacity(capacity),
                ..State::default()
            }),
        });
        log.segments.table().push(Arc::clone(&self.segment));
        log.space.preallocator().enter(number, ready.written_to, ready.limit);
        log.pending.request_rotation();
        Ok(())
    }

    /// Truncates the file at the end of the log and makes all of it durable, for a clean close.
    pub(crate) fn end_file(&mut self, log: &WriteHalf) -> Result<()> {
        let end = u64::from(self.segment.state.read().end);
        self.file.set_len(end)?;
        let mut start = Instant::now();
        for file in self.unsynced.drain(..) {
            file.sync_data()?;
            start = log.counters.synced(start);
        }
        self.file.sync_data()?;
        log.counters.synced(start);
        Ok(())
    }
}

/// A sync of a commit. Its failure is terminal.
fn sync_file(file: &Arc<dyn File>) -> esker_disk::Result<()> {
    if is_planted(Bug::StalledSyncTakenForDone) {
        return planted::sync_impatiently(file);
    }
    match file.sync_data() {
        Err(_) if is_planted(Bug::FailedSyncRetried) => file.sync_data(),
        done => done,
    }
}

/// Waits until every appender of the unit has copied its record, and its component has indexed it.
fn wait_for_appenders(log: &WriteHalf, unit: &Unit) -> u64 {
    let fill_tracker = log.fill_tracker(unit.number);
    let mut backoff = Backoff::default();
    loop {
        if let Some(digest) = fill_tracker.complete(unit.filling()) {
            return digest;
        }
        if !backoff.spin() {
            backoff.sleep();
        }
    }
}
