//! The one who makes jobs of the core ready to be written, in order.
//!
//! There is one committer for a log, handed from whoever prepares a commit to whoever prepares the
//! next. What the next unit needs of the last one, the file and the checksum to chain to, goes with
//! it. The I/O itself is a [`CommitIo`], which needs the committer no more: the next commit is prepared
//! while this one is written.
//!
//! # The crash argument of a commit
//!
//! A unit goes to blocks where nothing durable stands: the core gives each range once, and after a
//! crash recovery never writes behind an old end (see `recovery`). Its header, with the checksum
//! over all of it, is part of the same write; whatever part of the write a crash leaves, either the
//! whole unit is there or its checksum does not match. It is durable when the write through O_DSYNC
//! returned, or the sync behind it, for it and for every unit before it; only then is the mark moved
//! and a ticket resolved. The claim in a header is the durable mark of the moment before the write was
//! submitted, never more; under `OsBuffered` the watermark page, stored and synced before a ticket resolves,
//! says what no unit says (see `mark`). So of the units in flight a crash may leave any: one that is there behind
//! one that is missing claims nothing about that, and is cut off with it.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use esker_disk::{AlignedBuf, File, write_all_at};
use parking_lot::RwLock;

use crate::base::error::{Error, Result};
use crate::base::log_end::Mark;
use crate::base::options::Policy;
use crate::commit::committer::Committer;
use crate::commit::core::{Job, Unit};
use crate::commit::write_half::WriteHalf;
use crate::format::{BLOCK, IndexEntry, SegmentHeader, UnitHeader, UnitKind};
use crate::staging::buffer::close_unit;
use crate::store::paths;
use crate::store::segment_table::{Segment, State};

/// A job with everything that its I/O needs.
#[derive(Debug)]
pub(crate) struct CommitIo {
    job: Job,
    file: Arc<dyn File>,
    /// The files to sync, but for the one that is written.
    unsynced: Vec<Arc<dyn File>>,
}

impl CommitIo {
    /// Does the I/O.
    pub(crate) fn execute(&self, log: &WriteHalf) -> Result<()> {
        let sync = match &self.job {
            Job::Write { unit, sync } => {
                let bytes = unit.buffer.bytes(unit.range.clone());
                write_all_at(&*self.file, bytes, u64::from(unit.range.start))?;
                log.counters.wrote(bytes.len() as u64);
                *sync
            }
            Job::Sync { .. } => true,
        };
        if sync {
            if !log.mode.dsync {
                for file in &self.unsynced {
                    file.sync_data()?;
                    log.counters.synced();
                }
                self.file.sync_data()?;
            }
            log.counters.synced();
            if log.options.policy == Policy::OsBuffered {
                // One sync may make many units durable, and none of them says so. Such commits are
                // in flight one at a time, so all before this mark is durable, too.
                log.watermark_page.lock().store_durably(self.job.mark())?;
            }
        }
        Ok(())
    }

    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// The emptied list of index entries, to be filled again.
    pub(crate) fn into_index(self) -> Vec<IndexEntry> {
        match self.job {
            Job::Write { unit, .. } => unit.index,
            Job::Sync { .. } => Vec::new(),
        }
    }
}

impl Committer {
    /// Makes a job ready to be written.
    pub(crate) fn prepare(
        &mut self,
        log: &WriteHalf,
        mut job: Job,
        durable: Mark,
    ) -> Result<CommitIo> {
        let sync = match &mut job {
            Job::Write { unit, sync } => {
                self.complete(log, unit, durable)?;
                *sync
            }
            Job::Sync { .. } => true,
        };
        let unsynced = if sync { std::mem::take(&mut self.unsynced) } else { Vec::new() };
        Ok(CommitIo { job, file: Arc::clone(&self.file), unsynced })
    }

    /// Closes a unit with its header, and enters it in its segment. Readers look only as far as the
    /// durable mark.
    fn complete(&mut self, log: &WriteHalf, unit: &mut Unit, durable: Mark) -> Result<()> {
        let time_ms = log.engine.wall_ms();
        if unit.buffer.segment != self.segment.number() {
            self.rotate(log, unit, durable, time_ms)?;
        }
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
        log.preallocator.wait_clear(unit.buffer.segment, &unit.range);
        self.chain = crc;

        let mut state = self.segment.state.write();
        state.end = unit.range.end;
        state.last_seq = unit.last_seq;
        state.chain = crc;
        state.records += u64::from(unit.records);
        state.time_ms = time_ms;
        state.index.append(&mut unit.index);
        Ok(())
    }

    /// Goes on in the next segment: its header first, which says where this one ends.
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
        let Some(ready) = log.preallocator.take(number) else {
            // The core gives places in segments that are made, and in no others.
            tracing::error!(segment = number, "segment was not made");
            return Err(Error::Stopped);
        };
        let (block, header_crc) = header.to_block();
        let mut aligned = AlignedBuf::new(block.len());
        aligned.copy_from_slice(&block);
        write_all_at(&*ready.writer, &aligned, 0)?;

        let full = self.segment.header.base + u64::from(self.segment.state.read().end);
        debug_assert_eq!(full, unit.buffer.base);
        self.segment.state.write().full = true;
        let old = std::mem::replace(&mut self.file, ready.writer);
        if !log.mode.dsync {
            self.unsynced.push(old);
        }
        self.chain = header_crc;
        let capacity = (log.options.segment_size / log.options.index_bytes) as usize + 8;
        self.segment = Arc::new(Segment {
            header,
            header_crc,
            salt: header.salt(),
            path: log.dir.path_of(&paths::segment(number)),
            reader: ready.reader,
            state: RwLock::new(State {
                end: BLOCK,
                last_seq: unit.prev_seq,
                chain: header_crc,
                time_ms,
                index: Vec::with_capacity(capacity),
                ..State::default()
            }),
        });
        log.segments.push(Arc::clone(&self.segment));
        log.preallocator.enter(number, ready.written_to, ready.limit);
        log.rotation_pending.store(true, SeqCst);
        Ok(())
    }

    /// Ends the file at the end of the log and makes all of it durable, for a clean close.
    pub(crate) fn end_file(&mut self, log: &WriteHalf) -> Result<()> {
        let end = u64::from(self.segment.state.read().end);
        self.file.set_len(end)?;
        for file in self.unsynced.drain(..) {
            file.sync_data()?;
        }
        self.file.sync_data()?;
        log.counters.synced();
        Ok(())
    }
}

/// Waits until every appender of the unit has copied its record: the time of a copy.
fn wait_for_appenders(log: &WriteHalf, unit: &Unit) -> u64 {
    let fill_tracker = log.fill_tracker(unit.number);
    let mut looks = 0u32;
    loop {
        if let Some(digest) = fill_tracker.complete(unit.filling()) {
            return digest;
        }
        looks += 1;
        if looks < 128 { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}
