//! Reclaiming space: for components that keep an index of the records of a log.
//!
//! A log drops its oldest segments whole. A component calls a record *live* when its index names it.
//! Before a segment is dropped, its live records are appended again at the tail, and the index names the
//! copies. [`Plan`] decides which segments are worth that, without any I/O; [`run`] does it, for anything
//! that implements [`Owner`].
//!
//! # The crash argument
//!
//! One pass does this, in this order:
//!
//! 1. It lists the full segments, and then waits until every append that came before is in the index
//!    ([`Owner::barrier`]). From here on a record in those segments that the index does not name is dead for
//!    ever: an index never names an older record than before.
//! 2. It reads the live records of the segments in the order of the log, and appends each again if, under the
//!    lock of its key, the index still names it ([`Owner::append_again`]): otherwise a value that was
//!    overwritten meanwhile would come back.
//! 3. When the copies are durable, the index names them, wherever it still names the originals
//!    ([`Owner::moved`]).
//! 4. The owner makes durable whatever else an opening would look for before the cut
//!    ([`Owner::before_drop`]). For an index with checkpoints this is a checkpoint.
//! 5. The log drops its prefix, durably.
//!
//! After a crash before 5 is durable, the originals are all there, and the copies say again what is so:
//! replaying both must come to the same state. After it, the copies are durable (3), and so is what names
//! them (4). A pass that is cut short by a crash, an error or a close leaves copies that nothing names,
//! and the next pass finds them dead. Two crashes in a row are two such passes.
//!
//! # Bounds
//!
//! A pass copies at most about [`COPIES`] bytes, or one step of the rule if that is more. It keeps the
//! numbers of at most [`NUMBERS`] live records in memory, and one batch of records. After each
//! [`PIECE`] bytes it waits until the copies are durable and calls [`Owner::pace`], which may pause, or end
//! the pass.

mod plan;

use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::base::position::Seq;
use crate::log::Log;
use crate::read::batch::Record;
use crate::read::cursor::Start;
use crate::read::stream::Stream;
use crate::write::ticket::Ticket;

pub use plan::{Effort, Plan, Usage};

/// The bytes that are copied between two pauses.
pub const PIECE: u64 = 256 << 10;
/// About the most bytes that one pass copies.
pub const COPIES: u64 = 64 << 20;
/// The most numbers of live records that are kept in memory at a time.
pub const NUMBERS: usize = 1 << 19;
/// Dead records that are read over on the way to a live one, rather than begin a read anew.
const NEAR: u64 = 4096;

/// What a record with a payload of this length takes in a segment, in bytes. Padding of whole commit units
/// is not in it.
pub fn stored_size(payload: usize) -> u64 {
    (u64::from(crate::format::record::RECORD_HEADER) + payload as u64).next_multiple_of(8)
}

/// A record that its owner still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Live {
    /// Its number.
    pub seq: Seq,
    /// About what it takes in the log, in bytes; see [`stored_size`]. Never 0.
    pub bytes: u64,
    /// [`Owner::before_drop`] writes it anew, and it is not copied: a part of a checkpoint.
    pub rewritten: bool,
}

impl Live {
    /// A record that is copied.
    pub const fn copied(seq: Seq, bytes: u64) -> Self {
        Self { seq, bytes, rewritten: false }
    }

    /// A record that [`Owner::before_drop`] writes anew.
    pub const fn rewritten(seq: Seq, bytes: u64) -> Self {
        Self { seq, bytes, rewritten: true }
    }
}

/// A component with an index of the records of a log.
///
/// Any method may end the pass with an error: nothing is lost by that.
pub trait Owner {
    /// An error of the component.
    type Error: From<Error>;
    /// Where the index names a record: a slot, a key.
    type Key;

    /// Returns when every append that began before this call is in the index, or failed.
    ///
    /// # Errors
    /// Ends the pass.
    fn barrier(&self) -> Result<(), Self::Error>;

    /// Visits every live record, in any order. What changes meanwhile may be visited or not, and
    /// what is live throughout is visited.
    ///
    /// # Errors
    /// Ends the pass.
    fn each_live(&self, visit: &mut dyn FnMut(Live)) -> Result<(), Self::Error>;

    /// Appends the record again, under the lock of its key, if the index still names it; `None` if
    /// not. The copy must have the same effect on a replay.
    ///
    /// # Errors
    /// Ends the pass.
    fn append_again(&self, record: &Record<'_>)
    -> Result<Option<(Self::Key, Ticket)>, Self::Error>;

    /// The copy is durable. The index names it from here on, if it still names the original.
    ///
    /// # Errors
    /// Ends the pass.
    fn moved(&self, key: Self::Key, from: Seq, to: Seq) -> Result<(), Self::Error>;

    /// Makes durable whatever an opening would look for before `cut`, except for records that were
    /// copied.
    ///
    /// # Errors
    /// Ends the pass.
    fn before_drop(&self, cut: Seq) -> Result<(), Self::Error>;

    /// A piece of work took so long. A background pass pauses here, and ends with an error when the
    /// component is being closed.
    ///
    /// # Errors
    /// Ends the pass.
    fn pace(&self, took: Duration) -> Result<(), Self::Error>;
}

/// What was reclaimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reclaimed {
    /// Segments dropped.
    pub segments: u64,
    /// Bytes in them.
    pub bytes_freed: u64,
    /// Live records that were appended again.
    pub records_copied: u64,
    /// Bytes of these in the log. What [`Owner::before_drop`] wrote is not in it.
    pub bytes_copied: u64,
}

impl std::ops::AddAssign for Reclaimed {
    fn add_assign(&mut self, other: Self) {
        self.segments += other.segments;
        self.bytes_freed += other.bytes_freed;
        self.records_copied += other.records_copied;
        self.bytes_copied += other.bytes_copied;
    }
}

/// One pass: plans, copies what is live, and drops segments. What it returns has no segments when none is worth
/// dropping; otherwise another pass may find more. The caller sees to it that there is one pass at a time.
///
/// # Durability
/// What was dropped is durably gone when this returns, and every live record is durable.
///
/// # Errors
/// Those of the owner, and the log's own: a live record that cannot be read ends the pass, and its segment
/// stays.
pub fn run<O: Owner>(log: &Log, owner: &O, effort: Effort) -> Result<Reclaimed, O::Error> {
    let mut done = Reclaimed::default();
    let began = Instant::now();
    let mut spans = log.segments();
    // The newest is written to.
    if spans.pop().is_none() || spans.is_empty() {
        return Ok(done);
    }
    owner.barrier()?;
    let mut usage: Vec<_> = spans.iter().map(|span| Usage::new(span.last, span.bytes, 0)).collect();
    owner.each_live(&mut |live| {
        let at = usage.partition_point(|usage| usage.last < live.seq);
        if let Some(usage) = usage.get_mut(at) {
            usage.live += live.bytes.max(1);
        }
    })?;
    owner.pace(began.elapsed())?;
    let size = u64::from(log.write.options.segment_size);
    let Some(plan) = Plan::new(&usage, size, effort, COPIES) else { return Ok(done) };
    if plan.live > 0 {
        copy(log, owner, plan.cut, &mut done)?;
        // Whatever went wrong: nothing is dropped that the index still names.
        let (left, _) = numbers(owner, Seq::ZERO, plan.cut)?;
        if let Some(seq) = left.first().copied() {
            return Err(Error::NotFound { seq }.into());
        }
    }
    owner.before_drop(plan.cut)?;
    log.truncate_before(plan.cut)?;
    done.segments = plan.segments as u64;
    done.bytes_freed = plan.bytes;
    Ok(done)
}

/// Appends every live record before the cut again.
fn copy<O: Owner>(log: &Log, owner: &O, cut: Seq, done: &mut Reclaimed) -> Result<(), O::Error> {
    let mut from = Seq::ZERO;
    loop {
        let began = Instant::now();
        let (numbers, whole) = numbers(owner, from, cut)?;
        owner.pace(began.elapsed())?;
        let Some(last) = numbers.last().copied() else { return Ok(()) };
        copy_these(log, owner, &numbers, done)?;
        if whole {
            return Ok(());
        }
        from = Seq(last.0 + 1);
    }
}

/// The lowest numbers of live records from one on and before the cut, in order, and whether these are all.
fn numbers<O: Owner>(owner: &O, from: Seq, cut: Seq) -> Result<(Vec<Seq>, bool), O::Error> {
    let mut numbers = Vec::new();
    let mut end = cut;
    owner.each_live(&mut |live| {
        if live.rewritten || live.seq < from || live.seq >= end {
            return;
        }
        numbers.push(live.seq);
        if numbers.len() >= 2 * NUMBERS {
            numbers.select_nth_unstable(NUMBERS);
            end = numbers[NUMBERS];
            numbers.truncate(NUMBERS);
        }
    })?;
    numbers.sort_unstable();
    numbers.dedup();
    Ok((numbers, end == cut))
}

/// Copies that are not known to be durable.
struct Piece<K> {
    copies: Vec<(K, Seq, Ticket)>,
    bytes: u64,
    began: Instant,
}

impl<K> Piece<K> {
    fn new() -> Self {
        Self { copies: Vec::new(), bytes: 0, began: Instant::now() }
    }

    /// Waits until the copies are durable, and hands them to the index.
    fn end<O: Owner<Key = K>>(self, owner: &O, done: &mut Reclaimed) -> Result<(), O::Error> {
        let Self { mut copies, bytes, began } = self;
        if let Some((key, from, last)) = copies.pop() {
            let to = last.wait().map_err(O::Error::from)?.seq;
            done.records_copied += copies.len() as u64 + 1;
            done.bytes_copied += bytes;
            for (key, from, ticket) in copies {
                owner.moved(key, from, ticket.seq())?;
            }
            owner.moved(key, from, to)?;
        }
        owner.pace(began.elapsed())
    }
}

/// Appends these records again, as far as they are live.
fn copy_these<O: Owner>(
    log: &Log,
    owner: &O,
    mut numbers: &[Seq],
    done: &mut Reclaimed,
) -> Result<(), O::Error> {
    let mut piece = Piece::new();
    let mut stream: Option<Stream> = None;
    let mut reached = Seq::ZERO;
    while let [next, rest @ ..] = numbers {
        if next.0.saturating_sub(reached.0) > NEAR {
            stream = None;
        }
        let batch = match &mut stream {
            Some(stream) => stream.try_next(),
            None => log.stream(Start::From(*next)).and_then(|new| stream.insert(new).try_next()),
        };
        let Ok(Some(batch)) = batch else {
            // Something near it cannot be read. If that is another record, this one still can.
            let view = log.read(*next)?;
            again(owner, &view.record(), &mut piece)?;
            (stream, reached, numbers) = (None, *next, rest);
            continue;
        };
        for record in &batch {
            reached = record.seq;
            while let [next, rest @ ..] = numbers
                && *next <= record.seq
            {
                if *next == record.seq {
                    again(owner, &record, &mut piece)?;
                }
                numbers = rest;
            }
            if piece.bytes >= PIECE {
                std::mem::replace(&mut piece, Piece::new()).end(owner, done)?;
            }
        }
        // Reading counts, too.
        if piece.bytes == 0 {
            std::mem::replace(&mut piece, Piece::new()).end(owner, done)?;
        }
    }
    piece.end(owner, done)
}

fn again<O: Owner>(
    owner: &O,
    record: &Record<'_>,
    piece: &mut Piece<O::Key>,
) -> Result<(), O::Error> {
    if let Some((key, ticket)) = owner.append_again(record)? {
        piece.bytes += stored_size(record.payload.len());
        piece.copies.push((key, record.seq, ticket));
    }
    Ok(())
}
