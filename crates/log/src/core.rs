//! The commit core: who comes after whom, what is staged, what is written, what is durable.
//!
//! A pure state machine: it does no I/O, takes no lock, asks no clock and starts nothing. Appends
//! go in and places come out; [`Core::next_job`] says what to write or sync next, and
//! [`Core::complete`] takes the outcome. Whoever drives it, a waiting caller, an engine thread or a
//! test, drives the same code.
//!
//! **Order.** Places are given in order under the caller's lock, across units and segments. A unit
//! is a run of places; it is *open* until it is full or a commit is asked for, then *sealed*, then
//! *written*, then *durable*, and units go through these states in order.
//!
//! **Fresh blocks.** A unit begins where the last one ended, rounded up to a block. No byte of an
//! earlier unit is ever in a later one's range.
//!
//! **Bounds.** At most `buffers` windows hold units that are not durable, and at most
//! twice as many units are not written. When either is reached the answer is [`Refusal::Full`], and
//! the caller waits or gives up.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Latch};
use crate::format::unit::UNIT_HEADER;
use crate::format::{BLOCK, IndexEntry, LogId, Salt, UNIT_MAX, block_up};
use crate::options::{Options, Policy};
use crate::position::{Position, Seq};
use crate::tail::Tail;
use crate::progress::Progress;
use crate::window::{Piece, Place, Window};

/// How far the log is durable, or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    /// The number of the last unit.
    pub(crate) unit: u64,
    /// The position behind its last block.
    pub(crate) position: u64,
    /// Its last record.
    pub(crate) seq: u64,
}

/// A sealed unit on its way to the disk.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) number: u64,
    pub(crate) window: Arc<Window>,
    pub(crate) salt: Salt,
    /// Offsets in the segment, whole blocks.
    pub(crate) range: Range<u32>,
    /// Bytes of header and records.
    pub(crate) used: u32,
    pub(crate) records: u32,
    pub(crate) prev_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) index: Vec<IndexEntry>,
}

impl Unit {
    /// The bytes that appenders fill.
    pub(crate) fn filling(&self) -> u32 {
        self.used - UNIT_HEADER
    }

    /// The mark that holds once this unit is.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            unit: self.number,
            position: self.window.base + u64::from(self.range.end),
            seq: self.last_seq,
        }
    }
}

/// What the disk should do next.
#[derive(Debug)]
pub(crate) enum Job {
    /// Write the unit and, if asked, make it and all before it durable.
    Write { unit: Unit, sync: bool },
    /// Make all that was written durable.
    Sync,
}

/// Why no place was given.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no room until a commit ends. The caller may wait for one.
    Full,
    /// Not now and not later.
    Error(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The order that a caller demands for a record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Numbering {
    /// The log gives the next number.
    Next,
    /// The caller brings it, and says what it must follow.
    Given { seq: u64, prev: u64 },
}

/// Where a place is, for the one who fills it.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) place: Place,
    pub(crate) window: Arc<Window>,
    pub(crate) unit: u64,
    pub(crate) position: Position,
}

/// The records of a unit that is not durable yet.
#[derive(Debug, Clone)]
pub(crate) struct Staged {
    pub(crate) unit: u64,
    pub(crate) window: Arc<Window>,
    /// Offsets of the records in the segment.
    pub(crate) records: Range<u32>,
    pub(crate) prev_seq: u64,
}

#[derive(Debug)]
struct Open {
    number: u64,
    window: Arc<Window>,
    start: u32,
    used: u32,
    records: u32,
    prev_seq: u64,
    index: Vec<IndexEntry>,
}

impl Open {
    fn staged(&self) -> Staged {
        Staged {
            unit: self.number,
            window: Arc::clone(&self.window),
            records: self.start + UNIT_HEADER..self.start + self.used,
            prev_seq: self.prev_seq,
        }
    }
}

/// Where the next segment-sized decision is taken.
#[derive(Debug, Clone, Copy)]
struct Frontier {
    segment: u64,
    salt: Salt,
    base: u64,
    /// Where the next unit begins, unless one is open.
    offset: u32,
    /// Records in the segment so far.
    records: u64,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    record: u32,
    segment: u32,
    segment_records: u64,
    window: u32,
    windows: usize,
    index_bytes: u32,
    index_records: u32,
}

/// Where the log stands when it is opened: the state that recovery hands over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) log: LogId,
    pub(crate) segment: u64,
    pub(crate) base: u64,
    pub(crate) offset: u32,
    pub(crate) records: u64,
    pub(crate) last_seq: u64,
}

#[derive(Debug)]
pub(crate) struct Core {
    log: LogId,
    limits: Limits,
    policy: Policy,
    frontier: Frontier,
    /// The last number given.
    last: u64,
    next_unit: u64,
    open: Option<Open>,
    sealed: VecDeque<Unit>,
    /// The records of sealed units that are not durable.
    staged: VecDeque<Staged>,
    written: Mark,
    durable: Mark,
    /// Records accepted, written and durable since the start.
    accepted_records: u64,
    durable_records: u64,
    written_records: u64,
    /// Units up to this number should be written, and made durable, without waiting for more.
    asked_write: u64,
    asked_sync: u64,
    latch: Option<Latch>,
    tail: Arc<Tail>,
    /// One for each unit that is not written yet, used in turn.
    progress: Arc<[Progress]>,
    /// Index entries since the last one: bytes and records.
    since_index: (u32, u32),
    spare_index: Vec<Vec<IndexEntry>>,
}

impl Core {
    pub(crate) fn new(start: &Start, options: &Options, tail: Arc<Tail>) -> Self {
        let position = start.base + u64::from(start.offset);
        let mark = Mark { unit: 0, position, seq: start.last_seq };
        Self {
            log: start.log,
            limits: Limits {
                record: options.record_limit,
                segment: options.segment_size,
                segment_records: options.segment_records.unwrap_or(u64::MAX),
                window: options.buffer_size,
                windows: options.buffers as usize,
                index_bytes: options.index_bytes,
                index_records: options.index_records,
            },
            policy: options.policy,
            frontier: Frontier {
                segment: start.segment,
                salt: Salt::new(start.log, start.segment),
                base: start.base,
                offset: start.offset,
                records: start.records,
            },
            last: start.last_seq,
            next_unit: 1,
            open: None,
            sealed: VecDeque::with_capacity(16),
            staged: VecDeque::with_capacity(16),
            written: mark,
            durable: mark,
            accepted_records: 0,
            durable_records: 0,
            written_records: 0,
            asked_write: 0,
            asked_sync: 0,
            latch: None,
            tail,
            progress: (0..2 * options.buffers).map(|_| Progress::default()).collect(),
            since_index: (u32::MAX / 2, 0),
            spare_index: Vec::new(),
        }
    }

    // ---- appending -----------------------------------------------------------------------------

    /// Gives the next record its place, or says why not. Nothing changes on a refusal.
    pub(crate) fn place(&mut self, numbering: Numbering, size: usize) -> Result<Placed, Refusal> {
        self.refuse_if_latched()?;
        self.check_size(size)?;
        let (seq, prev) = self.number(numbering)?;
        self.check_window(1)?;
        let stored = crate::format::record::stored_size(size);
        self.make_room(stored)?;
        self.take(seq, prev, stored)
    }

    /// Gives a record of an atomic batch its place, which [`Core::prepare_batch`] made sure of.
    pub(crate) fn place_prepared(
        &mut self,
        numbering: Numbering,
        size: usize,
    ) -> Result<Placed, Refusal> {
        let (seq, prev) = self.number(numbering)?;
        let stored = crate::format::record::stored_size(size);
        self.make_room(stored)?;
        self.take(seq, prev, stored)
    }

    /// Makes sure that an atomic batch of so many records and bytes can be placed in one unit, by
    /// calls of [`Core::place_prepared`] that follow under the same lock.
    pub(crate) fn prepare_batch(&mut self, records: u64, stored: u64) -> Result<(), Refusal> {
        self.refuse_if_latched()?;
        let limit = u64::from(UNIT_MAX - UNIT_HEADER - BLOCK);
        if stored > limit {
            return Err(Error::BatchTooLarge { size: stored, limit }.into());
        }
        self.check_window(records)?;
        self.make_room(stored as u32)
    }

    /// Checks the numbers and sizes of a batch before any of it is placed.
    pub(crate) fn check_batch(
        &self,
        records: impl Iterator<Item = (Numbering, usize)>,
    ) -> Result<(), Error> {
        if let Some(latch) = &self.latch {
            return Err(latch.refusal());
        }
        let mut last = self.last;
        for (numbering, size) in records {
            self.check_size(size)?;
            last = match numbering {
                Numbering::Next => last.checked_add(1).ok_or(exhausted(last))?,
                Numbering::Given { seq, prev } => {
                    self.check_number(last, seq, prev)?;
                    seq
                }
            };
        }
        Ok(())
    }

    fn check_size(&self, size: usize) -> Result<(), Error> {
        if size > self.limits.record as usize {
            let limit = u64::from(self.limits.record);
            return Err(Error::TooLarge { size: size as u64, limit });
        }
        Ok(())
    }

    fn number(&self, numbering: Numbering) -> Result<(u64, u64), Error> {
        match numbering {
            Numbering::Next => {
                let seq = self.last.checked_add(1).ok_or(exhausted(self.last))?;
                Ok((seq, self.last))
            }
            Numbering::Given { seq, prev } => {
                self.check_number(self.last, seq, prev)?;
                // The first record of an empty log may follow any number.
                Ok((seq, prev))
            }
        }
    }

    /// Two claims to the same place are a conflict as long as the winner is not durable; after that
    /// the loser is simply out of order.
    fn check_number(&self, last: u64, seq: u64, prev: u64) -> Result<(), Error> {
        let anywhere = last == 0 && self.accepted_records == 0;
        if seq > prev && (prev == last || anywhere) {
            return Ok(());
        }
        if seq > prev && prev < last && prev >= self.durable.seq && last == self.last {
            return Err(Error::Conflict { prev: Seq(prev), last: Seq(last) });
        }
        Err(Error::Sequence { seq: Seq(seq), prev: Seq(prev), expected: Seq(last) })
    }

    /// Whether the policy's window allows so many more records.
    fn check_window(&mut self, records: u64) -> Result<(), Refusal> {
        let Policy::Batch(n) = self.policy else {
            return Ok(());
        };
        let waiting = self.accepted_records - self.durable_records;
        if waiting > 0 && waiting + records > 2 * n.get() - 1 {
            self.ask_all();
            return Err(Refusal::Full);
        }
        Ok(())
    }

    /// Makes the open unit one with room for so many bytes, sealing the one that has not enough.
    fn make_room(&mut self, stored: u32) -> Result<(), Refusal> {
        let segment_full = self.frontier.records >= self.limits.segment_records;
        let mut offset = self.frontier.offset;
        if let Some(open) = &self.open {
            let end = open.start + open.used;
            let fits = block_up(end + stored) <= open.window.limit;
            if fits && !segment_full && open.used + stored <= UNIT_MAX - BLOCK {
                return Ok(());
            }
            offset = block_up(end);
        }
        if self.next_unit - self.written.unit >= self.progress.len() as u64 {
            return Err(Refusal::Full);
        }

        let need = block_up(UNIT_HEADER + stored);
        let mut frontier = self.frontier;
        frontier.offset = offset;
        let behind = frontier.base + u64::from(offset);
        let rotate = frontier.offset > BLOCK
            && (segment_full || frontier.offset.saturating_add(need) > self.limits.segment);
        if rotate {
            frontier.segment += 1;
            frontier.base = behind;
            frontier.salt = Salt::new(self.log, frontier.segment);
            frontier.offset = BLOCK;
            frontier.records = 0;
        }
        let window = match self.tail.newest() {
            Some(window)
                if self.open.is_none()
                    && window.segment == frontier.segment
                    && frontier.offset + need <= window.limit =>
            {
                window
            }
            _ => {
                let settled = self.settled().position;
                if self.tail.staged(settled) >= self.limits.windows {
                    // What is in memory must get out before more comes in.
                    self.ask_all();
                    return Err(Refusal::Full);
                }
                let usual = self.limits.segment.min(frontier.offset + self.limits.window);
                let piece = Piece {
                    segment: frontier.segment,
                    base: frontier.base,
                    start: frontier.offset,
                    limit: usual.max(frontier.offset + need),
                };
                self.tail.open(piece, behind, self.limits.window, settled)
            }
        };

        self.seal();
        self.frontier = frontier;
        if rotate {
            self.since_index = (u32::MAX / 2, 0);
        }
        let number = self.next_unit;
        self.next_unit += 1;
        self.progress(number).reset();
        self.open = Some(Open {
            number,
            window,
            start: frontier.offset,
            used: UNIT_HEADER,
            records: 0,
            prev_seq: self.last,
            index: self.spare_index.pop().unwrap_or_default(),
        });
        Ok(())
    }

    fn take(&mut self, seq: u64, prev: u64, stored: u32) -> Result<Placed, Refusal> {
        let Some(open) = &mut self.open else {
            return Err(Refusal::Full);
        };
        if open.records == 0 {
            open.prev_seq = prev;
        }
        let offset = open.start + open.used;
        let (bytes, records) = self.since_index;
        if bytes >= self.limits.index_bytes || records >= self.limits.index_records {
            let entry = IndexEntry { seq, prev_seq: prev, unit: open.start, record: offset };
            open.index.push(entry);
            self.since_index = (0, 0);
        }
        self.since_index.0 = self.since_index.0.saturating_add(stored);
        self.since_index.1 += 1;
        open.used += stored;
        open.records += 1;
        self.frontier.records += 1;
        self.last = seq;
        self.accepted_records += 1;
        let placed = Placed {
            place: Place { offset, seq, salt: self.frontier.salt },
            window: Arc::clone(&open.window),
            unit: open.number,
            position: Position(self.frontier.base + u64::from(offset)),
        };
        if let Policy::Batch(n) = self.policy
            && u64::from(open.records) >= n.get()
        {
            self.ask_all();
        }
        Ok(placed)
    }

    /// Ends the open unit; the next begins on the next block.
    fn seal(&mut self) {
        let Some(open) = self.open.take() else {
            return;
        };
        let end = block_up(open.start + open.used);
        if self.frontier.segment == open.window.segment {
            self.frontier.offset = end;
        }
        self.staged.push_back(open.staged());
        self.sealed.push_back(Unit {
            number: open.number,
            salt: Salt::new(self.log, open.window.segment),
            range: open.start..end,
            used: open.used,
            records: open.records,
            prev_seq: open.prev_seq,
            last_seq: self.last,
            index: open.index,
            window: open.window,
        });
    }

    /// Whether another record would get a place whatever its size, or be refused for good.
    pub(crate) fn has_room(&mut self) -> bool {
        self.latch.is_some()
            || (self.check_window(1).is_ok()
                && self.tail.staged(self.settled().position) < self.limits.windows
                && self.next_unit - self.written.unit < self.progress.len() as u64)
    }

    // ---- asking --------------------------------------------------------------------------------

    /// The unit that holds the last record accepted.
    pub(crate) fn last_unit(&self) -> u64 {
        self.next_unit - 1
    }

    /// Asks that units up to this one become durable.
    pub(crate) fn ask_sync(&mut self, unit: u64) {
        let unit = unit.min(self.last_unit());
        self.asked_sync = self.asked_sync.max(unit);
        self.asked_write = self.asked_write.max(unit);
    }

    /// Asks that units up to this one be handed to the system.
    pub(crate) fn ask_write(&mut self, unit: u64) {
        self.asked_write = self.asked_write.max(unit.min(self.last_unit()));
    }

    fn ask_all(&mut self) {
        match self.policy {
            Policy::OsBuffered => self.ask_write(self.last_unit()),
            _ => self.ask_sync(self.last_unit()),
        }
    }

    /// Asks for what a caller that does not wait is owed under the policy.
    pub(crate) fn ask_unawaited(&mut self, unit: u64) {
        match self.policy {
            Policy::Always => self.ask_sync(unit),
            Policy::OsBuffered => self.ask_write(unit),
            Policy::Batch(_) | Policy::Periodic(_) => {}
        }
    }

    // ---- committing ----------------------------------------------------------------------------

    /// Whether there is something to do for a committer.
    pub(crate) fn has_job(&self) -> bool {
        if self.latch.as_ref().is_some_and(|latch| !matches!(latch, Latch::Closed)) {
            return false;
        }
        !self.sealed.is_empty() || self.open_is_due() || self.sync_is_due()
    }

    fn open_is_due(&self) -> bool {
        self.open
            .as_ref()
            .is_some_and(|open| open.records > 0 && open.number <= self.asked_write)
    }

    fn sync_is_due(&self) -> bool {
        self.durable.unit < self.written.unit && self.durable.unit < self.asked_sync
    }

    /// The next thing for the one committer to do. It reports the outcome by [`Core::complete`]
    /// before it asks again.
    pub(crate) fn next_job(&mut self) -> Option<Job> {
        if !self.has_job() {
            return None;
        }
        if self.sealed.is_empty() && self.open_is_due() {
            self.seal();
        }
        match self.sealed.pop_front() {
            Some(unit) => {
                let sync = self.policy != Policy::OsBuffered || unit.number <= self.asked_sync;
                Some(Job::Write { unit, sync })
            }
            None => Some(Job::Sync),
        }
    }

    /// A unit was written, and made durable if `sync`.
    pub(crate) fn complete(&mut self, mark: Mark, records: u32, sync: bool) {
        self.written = mark;
        self.written_records += u64::from(records);
        if sync {
            self.synced();
        }
    }

    /// All that was written is durable.
    pub(crate) fn synced(&mut self) {
        self.durable = self.written;
        self.durable_records = self.written_records;
        while self.staged.front().is_some_and(|staged| staged.unit <= self.durable.unit) {
            self.staged.pop_front();
        }
    }

    /// The records that are accepted and not durable, in order.
    pub(crate) fn staged(&self) -> impl Iterator<Item = Staged> {
        let open = self.open.as_ref().filter(|open| open.records > 0).map(Open::staged);
        self.staged.iter().cloned().chain(open)
    }

    /// Takes back an emptied list of index entries, to be filled again.
    pub(crate) fn return_index(&mut self, mut index: Vec<IndexEntry>) {
        if self.spare_index.len() < 4 {
            index.clear();
            self.spare_index.push(index);
        }
    }

    /// The count of a unit that is not written yet.
    pub(crate) fn progress(&self, unit: u64) -> &Progress {
        &self.progress[(unit % self.progress.len() as u64) as usize]
    }

    pub(crate) fn all_progress(&self) -> Arc<[Progress]> {
        Arc::clone(&self.progress)
    }

    // ---- looking -------------------------------------------------------------------------------

    pub(crate) fn durable(&self) -> Mark {
        self.durable
    }

    pub(crate) fn written(&self) -> Mark {
        self.written
    }

    /// How far memory is no longer needed: what the policy promises is kept elsewhere.
    fn settled(&self) -> Mark {
        match self.policy {
            Policy::OsBuffered => self.written,
            _ => self.durable,
        }
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.last
    }

    /// Records that are accepted and not durable.
    pub(crate) fn pending_records(&self) -> u64 {
        self.accepted_records - self.durable_records
    }

    /// The segment, and the offset in it, behind everything that was placed.
    pub(crate) fn frontier(&self) -> (u64, u32) {
        let offset = match &self.open {
            Some(open) => block_up(open.start + open.used),
            None => self.frontier.offset,
        };
        (self.frontier.segment, offset)
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    // ---- ending --------------------------------------------------------------------------------

    pub(crate) fn latch(&self) -> Option<&Latch> {
        self.latch.as_ref()
    }

    /// Accepts nothing more. The first reason stays, but a failure outranks a close.
    pub(crate) fn set_latch(&mut self, latch: Latch) {
        if matches!(self.latch, None | Some(Latch::Closed)) {
            self.latch = Some(latch);
        }
    }

    fn refuse_if_latched(&self) -> Result<(), Error> {
        self.latch.as_ref().map_or(Ok(()), |latch| Err(latch.refusal()))
    }
}

/// The answer when 2^64 - 1 was used as a number.
fn exhausted(last: u64) -> Error {
    Error::Sequence { seq: Seq(u64::MAX), prev: Seq(last), expected: Seq(last) }
}
