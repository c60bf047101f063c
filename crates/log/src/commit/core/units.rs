//! The units that are not durable, in order: those in flight, the sealed ones, the open one.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::base::log_end::Mark;
use crate::format::unit::UNIT_HEADER;
use crate::format::{IndexEntry, LogId, Salt, block_up};
use crate::staging::buffer::StagingBuffer;
use crate::staging::fill_tracker::FillTracker;
use crate::staging::staged::StagedUnit;

/// A sealed unit that is to be written.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) number: u64,
    pub(crate) buffer: Arc<StagingBuffer>,
    pub(crate) salt: Salt,
    /// Offsets in the segment, whole blocks.
    pub(crate) range: Range<u32>,
    /// Bytes of header and records.
    pub(crate) used: u32,
    /// Bytes of the payloads.
    pub(crate) payload: u32,
    pub(crate) records: u32,
    /// How many appends the records came with; an atomic batch is one.
    pub(crate) appends: u32,
    pub(crate) prev_seq: u64,
    pub(crate) last_seq: u64,
}

impl Unit {
    /// The number of bytes that appenders fill.
    pub(crate) fn filling(&self) -> u32 {
        self.used - UNIT_HEADER
    }

    /// The mark that is reached once this unit is written or durable.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            unit: self.number,
            position: self.buffer.base + u64::from(self.range.end),
            seq: self.last_seq,
            segment: self.buffer.segment,
        }
    }
}

/// Units that one write carries: each begins where the one before it ends, in the same buffer.
#[derive(Debug)]
pub(crate) struct Units {
    pub(crate) first: Unit,
    pub(crate) more: Vec<Unit>,
    /// The entries of the sparse index for all of them.
    pub(crate) index: Vec<IndexEntry>,
}

impl Units {
    pub(crate) fn last(&self) -> &Unit {
        self.more.last().unwrap_or(&self.first)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Unit> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// The offsets in the segment of all of them.
    pub(crate) fn range(&self) -> Range<u32> {
        self.first.range.start..self.last().range.end
    }

    /// Whether a unit may join them.
    fn precede(&self, unit: &Unit) -> bool {
        let last = self.last();
        Arc::ptr_eq(&last.buffer, &unit.buffer) && last.range.end == unit.range.start
    }
}

/// The unit that records are placed in.
#[derive(Debug)]
pub(super) struct OpenUnit {
    pub(super) number: u64,
    pub(super) buffer: Arc<StagingBuffer>,
    pub(super) start: u32,
    pub(super) used: u32,
    pub(super) records: u32,
    pub(super) appends: u32,
    payload: u32,
    prev_seq: u64,
}

impl OpenUnit {
    /// The offset after its last record.
    pub(super) fn end(&self) -> u32 {
        self.start + self.used
    }

    fn staged(&self) -> StagedUnit {
        StagedUnit {
            unit: self.number,
            buffer: Arc::clone(&self.buffer),
            records: self.start + UNIT_HEADER..self.end(),
            prev_seq: self.prev_seq,
        }
    }
}

/// A job that was handed out and is not yet accounted for.
#[derive(Debug)]
pub(super) struct InFlightCommit {
    pub(super) mark: Mark,
    pub(super) bytes: u32,
    pub(super) records: u32,
    pub(super) appends: u32,
    pub(super) sync: bool,
    pub(super) state: IoState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IoState {
    InFlight,
    Completed,
    Failed,
}

/// The most bytes and the most records between two entries of the sparse index.
#[derive(Debug, Clone, Copy)]
pub(super) struct IndexInterval {
    pub(super) bytes: u32,
    pub(super) records: u32,
}

/// Forces an index entry for the next record.
const ENTRY_DUE: (u32, u32) = (u32::MAX / 2, 0);

/// The units that are not durable, and the jobs that write them.
#[derive(Debug)]
pub(super) struct UnitQueue {
    /// The number of the next unit.
    next: u64,
    open: Option<OpenUnit>,
    sealed: VecDeque<Unit>,
    /// Jobs that were handed out, in order.
    in_flight: VecDeque<InFlightCommit>,
    /// The records of sealed units that are not durable.
    staged: VecDeque<StagedUnit>,
    /// The entries of the sparse index for the open unit and the sealed ones.
    index: VecDeque<IndexEntry>,
    /// Bytes and records since the last index entry.
    since_index: (u32, u32),
    index_interval: IndexInterval,
    /// One for each unit that is not yet written, used in turn.
    fill_trackers: Arc<[FillTracker]>,
    /// Emptied lists of writes that ended, for reuse: at most `depth`.
    spare_lists: Vec<(Vec<Unit>, Vec<IndexEntry>)>,
    /// The most jobs in flight at a time.
    depth: usize,
}

impl UnitQueue {
    /// `units`: how many may be not yet written. `depth`: how many jobs may be in flight.
    pub(super) fn new(units: usize, depth: usize, index_interval: IndexInterval) -> Self {
        Self {
            next: 1,
            open: None,
            sealed: VecDeque::with_capacity(16),
            in_flight: VecDeque::with_capacity(depth),
            staged: VecDeque::with_capacity(16),
            index: VecDeque::with_capacity(16),
            since_index: ENTRY_DUE,
            index_interval,
            fill_trackers: (0..units).map(|_| FillTracker::default()).collect(),
            spare_lists: Vec::new(),
            depth,
        }
    }

    pub(super) fn open(&self) -> Option<&OpenUnit> {
        self.open.as_ref()
    }

    /// The sealed units, oldest first.
    pub(super) fn sealed(&self) -> impl DoubleEndedIterator<Item = &Unit> {
        self.sealed.iter()
    }

    pub(super) fn first_sealed(&self) -> Option<&Unit> {
        self.sealed.front()
    }

    /// The jobs that were handed out and are not accounted for, oldest first.
    pub(super) fn in_flight(&self) -> &VecDeque<InFlightCommit> {
        &self.in_flight
    }

    /// Whether one more job may be in flight.
    pub(super) fn has_slot(&self) -> bool {
        self.in_flight.len() < self.depth
    }

    /// The number of the last unit that was begun.
    pub(super) fn last(&self) -> u64 {
        self.next - 1
    }

    /// Whether as many units as possible are not written, of which this one was the last.
    pub(super) fn is_full(&self, written: u64) -> bool {
        self.next - written >= self.fill_trackers.len() as u64
    }

    /// Begins a unit at an offset of its segment. There is no open one.
    pub(super) fn begin(&mut self, buffer: Arc<StagingBuffer>, start: u32, prev_seq: u64) {
        debug_assert!(self.open.is_none(), "a unit is begun beside another");
        let number = self.next;
        self.next += 1;
        self.fill_tracker(number).reset();
        let (used, payload, records, appends) = (UNIT_HEADER, 0, 0, 0);
        self.open =
            Some(OpenUnit { number, buffer, start, used, payload, records, appends, prev_seq });
    }

    /// The next record is the first of its segment, so it gets an index entry.
    pub(super) fn begin_segment(&mut self) {
        self.since_index = ENTRY_DUE;
    }

    /// Counts an append into the open unit. Returns `false` if there is none.
    pub(super) fn count_append(&mut self) -> bool {
        let Some(open) = &mut self.open else { return false };
        open.appends += 1;
        true
    }

    /// Adds a record to the open unit. Returns the unit and the record's offset in the segment;
    /// `None` if there is no open unit.
    pub(super) fn add_record(
        &mut self,
        (seq, prev): (u64, u64),
        stored: u32,
        payload: u32,
    ) -> Option<(&OpenUnit, u32)> {
        let open = self.open.as_mut()?;
        if open.records == 0 {
            open.prev_seq = prev;
        }
        let offset = open.end();
        let (bytes, records) = self.since_index;
        if bytes >= self.index_interval.bytes || records >= self.index_interval.records {
            let entry = IndexEntry { seq, prev_seq: prev, unit: open.start, record: offset };
            self.index.push_back(entry);
            self.since_index = (0, 0);
        }
        self.since_index.0 = self.since_index.0.saturating_add(stored);
        self.since_index.1 += 1;
        open.used += stored;
        open.payload += payload;
        open.records += 1;
        Some((open, offset))
    }

    /// Ends the open unit, of which this is the last record. Returns its segment, and the offset of
    /// the next unit there.
    pub(super) fn seal(&mut self, log: LogId, last_seq: u64) -> Option<(u64, u32)> {
        let open = self.open.take()?;
        let (segment, end) = (open.buffer.segment, block_up(open.end()));
        self.staged.push_back(open.staged());
        self.sealed.push_back(Unit {
            number: open.number,
            salt: Salt::new(log, segment),
            range: open.start..end,
            used: open.used,
            payload: open.payload,
            records: open.records,
            appends: open.appends,
            prev_seq: open.prev_seq,
            last_seq,
            buffer: open.buffer,
        });
        Some((segment, end))
    }

    /// Takes the units of the next write: the sealed ones of one buffer.
    pub(super) fn take_write(&mut self) -> Option<Units> {
        let first = self.sealed.pop_front()?;
        let (more, index) = self.spare_lists.pop().unwrap_or_default();
        let mut units = Units { first, more, index };
        while self.sealed.front().is_some_and(|unit| units.precede(unit)) {
            units.more.extend(self.sealed.pop_front());
        }
        let last = units.last().last_seq;
        let indexed = self.index.partition_point(|entry| entry.seq <= last);
        units.index.extend(self.index.drain(..indexed));
        Some(units)
    }

    /// Takes back what a write carried, for the reuse of its lists.
    pub(super) fn return_units(&mut self, units: Units) {
        let Units { mut more, mut index, .. } = units;
        if self.spare_lists.len() < self.depth {
            more.clear();
            index.clear();
            self.spare_lists.push((more, index));
        }
    }

    /// Adds a job that is handed out.
    pub(super) fn hand_out(&mut self, commit: InFlightCommit) {
        self.in_flight.push_back(commit);
    }

    /// The job that ends with this unit has ended. Returns whether there is one.
    pub(super) fn finish_io(&mut self, unit: u64, state: IoState) -> bool {
        let job = self.in_flight.iter_mut().find(|commit| commit.mark.unit == unit);
        let is_found = job.is_some();
        if let Some(job) = job {
            job.state = state;
        }
        is_found
    }

    /// Takes the oldest job if it is complete.
    pub(super) fn pop_completed(&mut self) -> Option<InFlightCommit> {
        let oldest = self.in_flight.front()?;
        let completed = oldest.state == IoState::Completed;
        if completed { self.in_flight.pop_front() } else { None }
    }

    /// Forgets the records of units up to this one, which the policy no longer needs in memory.
    pub(super) fn forget(&mut self, released: u64) {
        while self.staged.front().is_some_and(|staged| staged.unit <= released) {
            self.staged.pop_front();
        }
    }

    /// The records that are accepted but not durable, in order.
    pub(super) fn staged(&self) -> impl Iterator<Item = StagedUnit> {
        let open = self.open.as_ref().filter(|open| open.records > 0).map(OpenUnit::staged);
        self.staged.iter().cloned().chain(open)
    }

    /// Appends in the units that are not written.
    pub(super) fn appends(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| u64::from(open.appends))
            + self.sealed.iter().map(|unit| u64::from(unit.appends)).sum::<u64>()
            + self.in_flight.iter().map(|commit| u64::from(commit.appends)).sum::<u64>()
    }

    /// The fill tracker of a unit that is not yet written.
    pub(super) fn fill_tracker(&self, unit: u64) -> &FillTracker {
        &self.fill_trackers[(unit % self.fill_trackers.len() as u64) as usize]
    }

    pub(super) fn fill_trackers(&self) -> Arc<[FillTracker]> {
        Arc::clone(&self.fill_trackers)
    }
}
