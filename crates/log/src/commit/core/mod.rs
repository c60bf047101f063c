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
mod marks;
mod placement;
mod requests;
pub(crate) mod schedule;
mod segment_space;
mod units;

use std::sync::Arc;

use marks::Marks;
use requests::Requests;
use units::{IndexInterval, UnitQueue};
pub(crate) use units::{Unit, Units};

use crate::base::error::Terminal;
use crate::base::log_end::{LogEnd, Mark};
use crate::base::log_error::LogError;
use crate::base::operation_errors::AppendError;
use crate::base::options::{Options, Policy};
use crate::base::position::Position;
use crate::commit::commit_delay::CommitDelay;
use crate::format::{LogId, Salt, block_up};
use crate::staging::buffer::{Reservation, StagingBuffer};
use crate::staging::tail_cache::TailCache;

/// How many units of the usual size a staging buffer holds, within the bounds below.
const UNITS_PER_BUFFER: u32 = 4;
/// The bounds of the usual size: a smaller unit has little beside its header and padding, and a
/// larger one fits in no cache of a processor that checks it.
const UNIT_LEAST: u32 = 8 << 10;
const UNIT_MOST: u32 = 1 << 20;

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

/// The reason why a record was not placed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no room until a commit ends. The caller may wait for one.
    Full,
    /// There is no preallocated space. The caller may preallocate some.
    NeedsSpace(Need),
    /// The record cannot be accepted now or later.
    Error(AppendError),
    /// The state contradicts itself. The driver fails the log.
    Broken(BrokenInvariant),
}

impl From<AppendError> for Refusal {
    fn from(error: AppendError) -> Self {
        Self::Error(error)
    }
}

impl From<LogError> for Refusal {
    fn from(error: LogError) -> Self {
        Self::Error(error.into())
    }
}

/// An invariant that does not hold, as the sentence that should be true. The core is in its
/// terminal state. Its driver publishes that, wakes all waiters and panics in debug builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the driver publishes that the log failed"]
pub(crate) struct BrokenInvariant(pub(crate) &'static str);

impl From<BrokenInvariant> for Refusal {
    fn from(broken: BrokenInvariant) -> Self {
        Self::Broken(broken)
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
    /// The most bytes of grouped writes that have no sync; 0 where writes are not grouped.
    group: u64,
}

#[derive(Debug)]
pub(crate) struct Core {
    log: LogId,
    limits: Limits,
    policy: Policy,
    /// `None` while records may be accepted.
    terminal: Option<Terminal>,
    tail: Arc<TailCache>,
    frontier: Frontier,
    /// The segment after it, once created.
    next: Option<PreallocatedSegment>,
    units: UnitQueue,
    marks: Marks,
    requests: Requests,
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
        let (bytes, records) = (options.index_bytes, options.index_records);
        let index_interval = IndexInterval { bytes, records };
        Self {
            log: start.log,
            limits: Limits {
                record: options.record_limit,
                segment: options.segment_size,
                segment_records: options.segment_records.unwrap_or(u64::MAX),
                unit,
                buffer: options.buffer_size,
                buffers: options.buffers as usize,
                group: Self::group_limit(options, dsync),
            },
            policy: options.policy,
            terminal: None,
            tail,
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
            units: UnitQueue::new(2 * units as usize, depth, index_interval),
            marks: Marks::new(mark),
            requests: Requests::default(),
            commit_delay: CommitDelay::default(),
        }
    }

    pub(crate) fn durable(&self) -> Mark {
        self.marks.durable()
    }

    pub(crate) fn written(&self) -> Mark {
        self.marks.written()
    }

    /// The mark up to which staging memory may be reused: the policy no longer needs it.
    pub(crate) fn released(&self) -> Mark {
        match self.policy {
            Policy::OsBuffered => self.marks.written(),
            _ => self.marks.durable(),
        }
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.marks.last_seq()
    }

    /// Records accepted since the start, and the bytes of their payloads.
    pub(crate) fn appended(&self) -> (u64, u64) {
        self.marks.accepted()
    }

    /// Records that are accepted but not durable.
    pub(crate) fn pending_records(&self) -> u64 {
        self.marks.pending_records()
    }

    /// Records written since the start, without a gap.
    pub(crate) fn written_records(&self) -> u64 {
        self.marks.written_records()
    }

    /// The segment, and the offset in it, after everything that was placed.
    pub(crate) fn frontier(&self) -> (u64, u32) {
        let offset = match self.units.open() {
            Some(open) => block_up(open.end()),
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

    fn refuse_if_terminal(&self) -> Result<(), LogError> {
        self.terminal.as_ref().map_or(Ok(()), |terminal| Err(terminal.refusal()))
    }
}
