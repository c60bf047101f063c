//! The commit core: tracks the order of records and what is staged, written and durable.
//!
//! A pure state machine: it does no I/O, takes no lock, reads no clock and starts nothing. Appends
//! go in and places come out. [`Core::next_job`] returns what to write or sync next, and
//! [`Core::complete`] takes the outcome. Waiting callers, engine threads and tests all drive the
//! same code.
//!
//! **Commits.** [`schedule`] decides when one starts. [`Core::on`] takes each event that may start
//! one.
//!
//! **Order.** Places are assigned in order under the caller's lock, across units and segments. A
//! unit is a run of places. It is *open* until it is full or a commit is requested, then *sealed*,
//! then *written*, then *durable*. Units go through these states in order.
//!
//! **Chained units.** A reader checks a unit as a whole, so a unit ends at a quarter of a staging
//! buffer and at 1 MiB, unless one record or an atomic batch is larger. One write carries all units
//! that wait in the same buffer.
//!
//! **Fresh blocks.** A unit begins where the last one ended, rounded up to a block. No byte of an
//! earlier unit is ever in a later one's range.
//!
//! **Grouped writes.** Full buffers that no caller waits for may be written without O_DSYNC, and
//! one sync makes several of them durable: see [`grouping`].
//!
//! **In-flight commits.** A unit that is being written is in flight. A few later units may be, too,
//! and the device completes them in any order. The written and durable positions still advance in
//! order: a completed commit counts once all earlier ones are complete.
//!
//! **Bounds.** At most `buffers` staging buffers hold units that are not durable, and at most twice
//! as many units as fit in them are not written. At either bound the answer is [`Refusal::Full`],
//! and the caller waits or gives up.
//!
//! **Space.** Records are placed only in fully preallocated file ranges: see [`segment_space`].

mod grouping;
mod invariants;
mod jobs;
mod placement;
pub(crate) mod schedule;
mod segment_space;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::base::error::{Error, Terminal};
use crate::base::log_end::{LogEnd, Mark};
use crate::base::options::{Options, Policy};
use crate::base::position::Position;
use crate::commit::commit_delay::CommitDelay;
use crate::format::unit::UNIT_HEADER;
use crate::format::{IndexEntry, LogId, Salt, block_up};
use crate::staging::buffer::{Reservation, StagingBuffer};
use crate::staging::fill_tracker::FillTracker;
use crate::staging::staged::StagedUnit;
use crate::staging::tail_cache::TailCache;

/// How many units of the usual size a staging buffer holds, within the bounds below.
const UNITS_PER_BUFFER: u32 = 4;
/// The bounds of the usual size: a smaller unit has little beside its header and padding, and a
/// larger one fits in no cache of a processor that checks it.
const UNIT_LEAST: u32 = 8 << 10;
const UNIT_MOST: u32 = 1 << 20;

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

/// The next I/O request of the core.
#[derive(Debug)]
pub(crate) enum Job {
    /// Write the units and, if `sync` is set, make them and all earlier ones durable.
    Write { units: Units, sync: bool },
    /// Make all written units, through this mark, durable.
    Sync { through: Mark },
}

impl Job {
    /// The last unit that it writes or syncs.
    pub(crate) fn unit(&self) -> u64 {
        match self {
            Self::Write { units, .. } => units.last().number,
            Self::Sync { through } => through.unit,
        }
    }

    /// The mark up to which everything is written once the job is done.
    pub(crate) fn mark(&self) -> Mark {
        match self {
            Self::Write { units, .. } => units.last().mark(),
            Self::Sync { through } => *through,
        }
    }

    /// The last record that it writes.
    pub(crate) fn last_seq(&self) -> Option<u64> {
        match self {
            Self::Write { units, .. } => Some(units.last().last_seq),
            Self::Sync { .. } => None,
        }
    }
}

/// A job that was handed out and is not yet accounted for.
#[derive(Debug)]
struct InFlightCommit {
    mark: Mark,
    bytes: u32,
    records: u32,
    appends: u32,
    sync: bool,
    state: IoState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IoState {
    InFlight,
    Completed,
    Failed,
}

/// The reason why a record was not placed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no room until a commit ends. The caller may wait for one.
    Full,
    /// There is no preallocated space. The caller may preallocate some.
    NeedsSpace(Need),
    /// The record cannot be accepted now or later.
    Error(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The space that a unit needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    /// Whole blocks.
    pub(crate) bytes: u32,
    /// Set for an internal append, which may use the reserve.
    pub(crate) internal: bool,
}

/// Space to preallocate so that a unit can be placed. Offsets are those past the last byte that
/// units take. The file is longer, by its footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpaceDemand {
    /// More of a segment that is preallocated up to `from`.
    Extend { segment: u64, from: u32, least: u32, best: u32 },
    /// The next segment.
    Make { segment: u64, least: u32, best: u32 },
    /// The reserve must be filled again. The segment was made from it, and ordinary appends may use
    /// the segment only after that.
    Release,
}

/// A segment whose file is preallocated and that holds no units yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PreallocatedSegment {
    pub(crate) segment: u64,
    /// The offset past the last byte that units may take.
    pub(crate) limit: u32,
    /// The offset at which the segment is full; `limit` may grow up to here.
    pub(crate) full: u32,
    /// Only internal appends may use it.
    pub(crate) internal: bool,
}

/// The sequence number of a record, as its caller requests it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Numbering {
    /// The log assigns the next number.
    Next,
    /// The log assigns the next number if `prev` is the last one.
    NextAfter { prev: u64 },
    /// The caller provides the number and the number that it must follow.
    Given { seq: u64, prev: u64 },
}

/// The place of a record, for the appender that fills it.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) place: Reservation,
    pub(crate) buffer: Arc<StagingBuffer>,
    pub(crate) unit: u64,
    pub(crate) position: Position,
}

#[derive(Debug)]
struct OpenUnit {
    number: u64,
    buffer: Arc<StagingBuffer>,
    start: u32,
    used: u32,
    payload: u32,
    records: u32,
    appends: u32,
    prev_seq: u64,
}

impl OpenUnit {
    fn staged(&self) -> StagedUnit {
        StagedUnit {
            unit: self.number,
            buffer: Arc::clone(&self.buffer),
            records: self.start + UNIT_HEADER..self.start + self.used,
            prev_seq: self.prev_seq,
        }
    }
}

/// The end of what was placed: the current segment, and where its next unit begins.
#[derive(Debug, Clone, Copy)]
struct Frontier {
    segment: u64,
    salt: Salt,
    base: u64,
    /// The place where the next unit begins, unless one is open.
    offset: u32,
    /// Records in the segment so far.
    records: u64,
    /// As in [`PreallocatedSegment`].
    limit: u32,
    full: u32,
    internal: bool,
    /// Bytes of an internal segment that `Purpose::Freeing` took, with the padding that it
    /// caused.
    lent: u32,
    /// The end of the last block counted in `lent`.
    lent_until: u32,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    record: u32,
    segment: u32,
    segment_records: u64,
    unit: u32,
    buffer: u32,
    buffers: usize,
    index_bytes: u32,
    index_records: u32,
}

#[derive(Debug)]
pub(crate) struct Core {
    log: LogId,
    limits: Limits,
    policy: Policy,
    frontier: Frontier,
    /// The segment after it, once created.
    next: Option<PreallocatedSegment>,
    /// The last sequence number assigned.
    last: u64,
    next_unit: u64,
    open: Option<OpenUnit>,
    sealed: VecDeque<Unit>,
    /// The entries of the sparse index for the open unit and the sealed ones.
    index: VecDeque<IndexEntry>,
    /// Jobs that were handed out, in order.
    in_flight: VecDeque<InFlightCommit>,
    /// The most jobs in flight at a time.
    depth: usize,
    /// The records of sealed units that are not durable.
    staged: VecDeque<StagedUnit>,
    written: Mark,
    durable: Mark,
    /// The unit up to which the jobs handed out make the log durable, once they are complete.
    covered: Mark,
    /// A caller waits for the units up to this one, or did.
    awaited: u64,
    /// The most bytes of grouped writes that have no sync; 0 where writes are not grouped.
    group: u64,
    /// Records accepted, written and durable since the start.
    accepted_records: u64,
    /// Bytes of the payloads of accepted records.
    accepted_bytes: u64,
    durable_records: u64,
    written_records: u64,
    /// The same in appends, which `Policy::Batch` counts: an atomic batch is one.
    accepted_appends: u64,
    durable_appends: u64,
    written_appends: u64,
    /// Units up to these numbers are to be written, and made durable, without waiting for more
    /// records.
    requested_write: u64,
    requested_sync: u64,
    terminal: Option<Terminal>,
    tail: Arc<TailCache>,
    /// One for each unit that is not yet written, used in turn.
    fill_tracker: Arc<[FillTracker]>,
    /// Bytes and records since the last index entry.
    since_index: (u32, u32),
    /// Emptied lists of writes that ended, for reuse.
    spare_lists: Vec<(Vec<Unit>, Vec<IndexEntry>)>,
    commit_delay: CommitDelay,
}

impl Core {
    /// `dsync`: a write that is to be durable is so by itself. A sync covers only completed writes,
    /// so without that one job is in flight at a time.
    pub(crate) fn new(
        start: &LogEnd,
        options: &Options,
        tail: Arc<TailCache>,
        dsync: bool,
    ) -> Self {
        let depth = if dsync { options.commits_in_flight as usize } else { 1 };
        let position = start.base + u64::from(start.offset);
        let mark = Mark { unit: 0, position, seq: start.last_seq, segment: start.segment };
        let unit = block_up(options.buffer_size / UNITS_PER_BUFFER).clamp(UNIT_LEAST, UNIT_MOST);
        let units = options.buffers * options.buffer_size.div_ceil(unit);
        Self {
            log: start.log,
            limits: Limits {
                record: options.record_limit,
                segment: options.segment_size,
                segment_records: options.segment_records.unwrap_or(u64::MAX),
                unit,
                buffer: options.buffer_size,
                buffers: options.buffers as usize,
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
                // Only what exists already; anything more has to be preallocated.
                limit: start.offset,
                full: options.segment_size,
                internal: false,
                lent: 0,
                lent_until: 0,
            },
            next: None,
            last: start.last_seq,
            next_unit: 1,
            open: None,
            sealed: VecDeque::with_capacity(16),
            index: VecDeque::with_capacity(16),
            in_flight: VecDeque::with_capacity(depth),
            depth,
            staged: VecDeque::with_capacity(16),
            written: mark,
            durable: mark,
            covered: mark,
            awaited: 0,
            group: Self::group_limit(options, dsync),
            accepted_records: 0,
            accepted_bytes: 0,
            durable_records: 0,
            written_records: 0,
            accepted_appends: 0,
            durable_appends: 0,
            written_appends: 0,
            requested_write: 0,
            requested_sync: 0,
            terminal: None,
            tail,
            fill_tracker: (0..2 * units).map(|_| FillTracker::default()).collect(),
            since_index: (u32::MAX / 2, 0),
            spare_lists: Vec::new(),
            commit_delay: CommitDelay::default(),
        }
    }

    pub(crate) fn durable(&self) -> Mark {
        self.durable
    }

    pub(crate) fn written(&self) -> Mark {
        self.written
    }

    /// The mark up to which staging memory may be reused: the policy no longer needs it.
    pub(crate) fn released(&self) -> Mark {
        match self.policy {
            Policy::OsBuffered => self.written,
            _ => self.durable,
        }
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.last
    }

    /// Records accepted since the start, and the bytes of their payloads.
    pub(crate) fn appended(&self) -> (u64, u64) {
        (self.accepted_records, self.accepted_bytes)
    }

    /// Records that are accepted but not durable.
    pub(crate) fn pending_records(&self) -> u64 {
        self.accepted_records - self.durable_records
    }

    /// Records written since the start, without a gap.
    pub(crate) fn written_records(&self) -> u64 {
        self.written_records
    }

    /// The segment, and the offset in it, after everything that was placed.
    pub(crate) fn frontier(&self) -> (u64, u32) {
        let offset = match &self.open {
            Some(open) => block_up(open.start + open.used),
            None => self.frontier.offset,
        };
        (self.frontier.segment, offset)
    }

    pub(crate) fn terminal(&self) -> Option<&Terminal> {
        self.terminal.as_ref()
    }

    /// Enters a terminal state: no more records are accepted. The first reason stays, but a failure
    /// replaces a close.
    pub(crate) fn set_terminal(&mut self, terminal: Terminal) {
        if matches!(self.terminal, None | Some(Terminal::Closed)) {
            self.terminal = Some(terminal);
        }
    }

    /// The reason why nothing more may be written, if there is one.
    pub(crate) fn failure(&self) -> Option<&Terminal> {
        self.terminal.as_ref().filter(|terminal| !matches!(terminal, Terminal::Closed))
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure().is_some()
    }

    fn refuse_if_terminal(&self) -> Result<(), Error> {
        self.terminal.as_ref().map_or(Ok(()), |terminal| Err(terminal.refusal()))
    }
}
