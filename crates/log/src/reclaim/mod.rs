//! Reclaims space, for components that keep an index of the records of a log.
//!
//! A log drops its oldest segments whole. A record is *live* when the component's index names it.
//! Before a segment is dropped, its live records are appended again at the tail, and the index is
//! moved to the copies. [`Plan`] decides which segments are worth dropping, without any I/O.
//! [`run`] drops them, for any implementation of [`Owner`].
//!
//! # The crash argument
//!
//! One pass takes these steps, in this order:
//!
//! 1. It lists the full segments. Then it waits until every earlier append is in the index
//!    ([`Owner::barrier`]). From here on, a record in those segments that the index does not name
//!    is dead for ever: an index entry never changes to an older record.
//! 2. It reads the live records of the segments in log order. It appends each again if, under the
//!    lock of its key, the index still names it ([`Owner::append_again`]). Otherwise a value that
//!    was overwritten meanwhile would come back.
//! 3. When the copies are durable, each index entry that still names the original is changed to
//!    name the copy ([`Owner::moved`]).
//! 4. Everything accepted so far becomes durable: a dead record is dropped only if the record that
//!    replaced it survives a crash.
//! 5. The owner makes durable everything else that an opening would look for before the cut
//!    ([`Owner::before_drop`]). For an index with checkpoints this is a checkpoint.
//! 6. The log drops its prefix, durably.
//!
//! After a crash before step 6 is durable, all originals are still there, and the copies repeat
//! them. Replaying both must reach the same state. After step 6, the copies are durable (step 3),
//! and so is what replaced the dead records (step 4), and what names the copies (step 5). A crash,
//! an error or a close may end a pass early. Then some copies are named by nothing, and the next
//! pass finds them dead. Two crashes in a row are two such passes.
//!
//! # A full disk
//!
//! Copies may use the reserve of the log only if all of a pass fit there. Otherwise a pass that
//! frees nothing would use it up. A pass that finds no space continues as one with
//! [`Effort::FullDisk`]: it drops the segments that it has emptied, or copies what fits. Where live
//! segments are in front of dead ones, it moves those away first, as many as fit at a time, until
//! it reaches the dead ones. They are live at the end of the log then, where no further pass moves
//! them again: a full segment of live records is copied only for dead ones behind it. Segments pay
//! there when copying them frees a thirty-second part of them, not only when half is dead.
//! Otherwise deletes of single keys, which take a block each, would use up their share of the
//! reserve before anything can be freed. Half it is for an owner whose checkpoint grows with the
//! copies ([`Owner::CHECKPOINT_GROWS`]): its own writes could take more than a pass frees.
//!
//! # Bounds
//!
//! A pass copies at most about [`COPY_BYTES_MAX`] bytes, or one step of the rule if that is more;
//! with [`Effort::FullDisk`], what fits in the reserve beside what [`Owner::before_drop`] writes.
//! It keeps at most [`LIVE_NUMBERS_MAX`] sequence numbers of live records in memory, and
//! one batch of records. After each [`COPY_BATCH_BYTES`] bytes it waits until the copies are
//! durable. It then calls [`Owner::pace`], which may pause or end the pass.

mod plan;

use std::time::{Duration, Instant};

use esker_disk::planted::{Bug, is_planted};

use crate::base::error::Error;
use crate::base::log_error::refuse_if_forked;
use crate::base::position::Seq;
use crate::base::purpose::Purpose;
use crate::log::Log;
use crate::read::batch::Record;
use crate::read::cursor::Start;
use crate::read::stream::LogStream;
use crate::write::ticket::Ticket;

pub use plan::{Effort, Plan, Usage};

/// The number of bytes copied between two calls of [`Owner::pace`].
pub const COPY_BATCH_BYTES: u64 = 256 << 10;
/// About the most bytes that one pass copies.
pub const COPY_BYTES_MAX: u64 = 64 << 20;
/// The most sequence numbers of live records kept in memory at a time.
pub const LIVE_NUMBERS_MAX: usize = 1 << 19;
/// If the next live record is at most this many sequence numbers away, the read continues over the
/// dead records between; otherwise a new read begins.
const NEAR_NUMBERS: u64 = 4096;

/// The size of a record with a payload of this length in a segment, in bytes. Excludes the padding
/// of whole commit units.
pub fn stored_size(payload: usize) -> u64 {
    (u64::from(crate::format::record::RECORD_HEADER) + payload as u64).next_multiple_of(8)
}

/// A record that its owner still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Live {
    /// Its sequence number.
    pub seq: Seq,
    /// About its size in the log, in bytes; see [`stored_size`]. Never 0.
    pub bytes: u64,
    /// [`Owner::before_drop`] rewrites it, so it is not copied: a part of a checkpoint.
    pub rewritten: bool,
}

impl Live {
    /// A record that is copied.
    pub const fn copied(seq: Seq, bytes: u64) -> Self {
        Self { seq, bytes, rewritten: false }
    }

    /// A record that [`Owner::before_drop`] rewrites.
    pub const fn rewritten(seq: Seq, bytes: u64) -> Self {
        Self { seq, bytes, rewritten: true }
    }
}

/// A component with an index of the records of a log.
///
/// Any method may end the pass with an error. No record is lost by that.
pub trait Owner {
    /// The error type of the component.
    type Error: From<Error>;
    /// The key under which the index names a record, such as a slot.
    type Key;
    /// Whether copies make larger what [`Owner::before_drop`] writes. Then segments are freed on a
    /// full disk only where half of them is dead, as elsewhere.
    const CHECKPOINT_GROWS: bool;

    /// Returns when every append that began before this call is in the index, or has failed.
    ///
    /// # Errors
    /// Ends the pass.
    fn barrier(&self) -> Result<(), Self::Error>;

    /// Visits every live record, in any order. A record that is live throughout the call is
    /// visited. A record whose state changes meanwhile may or may not be.
    ///
    /// # Errors
    /// Ends the pass.
    fn each_live(&self, visit: &mut dyn FnMut(Live)) -> Result<(), Self::Error>;

    /// Appends the record again for this purpose, under the lock of its key, if the index still
    /// names it; `None` if not. The copy must have the same effect on a replay.
    /// [`ComponentLog`](crate::component::ComponentLog) has the methods for that.
    ///
    /// # Errors
    /// Ends the pass.
    fn append_again(
        &self,
        record: &Record<'_>,
        purpose: Purpose,
    ) -> Result<Option<(Self::Key, Ticket)>, Self::Error>;

    /// About how many bytes [`Owner::before_drop`] would append now, besides the records that
    /// [`Owner::each_live`] visits as rewritten. Copies leave as much of the reserve.
    fn bytes_before_drop(&self) -> u64 {
        0
    }

    /// Whether the cause is [`Error::NoSpace`].
    fn is_no_space(error: &Self::Error) -> bool;

    /// Reports that the copy is durable. The index must name it now, if it still names the
    /// original.
    ///
    /// # Errors
    /// Ends the pass.
    fn moved(&self, key: Self::Key, from: Seq, to: Seq) -> Result<(), Self::Error>;

    /// Makes durable everything that an opening would look for before `cut`, except the records
    /// that were copied.
    ///
    /// # Errors
    /// Ends the pass.
    fn before_drop(&self, cut: Seq) -> Result<(), Self::Error>;

    /// Reports how long a part of the work took. A background pass pauses here. It returns an error
    /// when the component is being closed.
    ///
    /// # Errors
    /// Ends the pass.
    fn pace(&self, took: Duration) -> Result<(), Self::Error>;
}

/// The result of a pass, or the sum of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reclaimed {
    /// Segments dropped.
    pub segments: u64,
    /// Bytes in the dropped segments.
    pub bytes_freed: u64,
    /// Live records that were appended again.
    pub records_copied: u64,
    /// Bytes of these in the log. Excludes what [`Owner::before_drop`] wrote.
    pub bytes_copied: u64,
}

impl Reclaimed {
    /// About the bytes that are free now and were not before. Excludes what
    /// [`Owner::before_drop`] wrote.
    pub fn gained(&self) -> u64 {
        let copies = match self.bytes_copied {
            0 => 0,
            copied => plan::space_of_copies(copied, self.segments),
        };
        self.bytes_freed.saturating_sub(copies)
    }
}

impl std::ops::AddAssign for Reclaimed {
    fn add_assign(&mut self, other: Self) {
        self.segments += other.segments;
        self.bytes_freed += other.bytes_freed;
        self.records_copied += other.records_copied;
        self.bytes_copied += other.bytes_copied;
    }
}

/// Runs one pass: plans, copies the live records, and drops segments. The result has no segments
/// when none is worth dropping; otherwise another pass may find more. The caller must run one pass
/// at a time.
///
/// # Durability
/// When this returns, the drop is durable, and so is every live record.
///
/// # Errors
/// The errors of the owner and of the log. A live record that cannot be read ends the pass, and its
/// segment stays. [`Error::NoSpace`] only if no segment could be dropped.
pub fn run<O: Owner>(log: &Log, owner: &O, effort: Effort) -> Result<Reclaimed, O::Error> {
    refuse_if_forked().map_err(Error::from)?;
    if effort == Effort::FullDisk {
        return on_full_disk(log, owner);
    }
    match pass(log, owner, effort) {
        Err(error) if O::is_no_space(&error) => {
            let done = on_full_disk(log, owner)?;
            if done.segments > 0 { Ok(done) } else { Err(error) }
        }
        Ok(done) if done.segments == 0 && effort == Effort::Full && log.write.is_full_disk() => {
            on_full_disk(log, owner)
        }
        done => done,
    }
}

/// Continues while live segments are only moved away from the front, because that alone makes no
/// room. It ends with the segments that exist now.
fn on_full_disk<O: Owner>(log: &Log, owner: &O) -> Result<Reclaimed, O::Error> {
    let end = log.accepted();
    let mut all = Reclaimed::default();
    loop {
        match pass(log, owner, Effort::FullDisk) {
            Ok(done) => {
                all += done;
                if done.gained() > 0 || done.segments == 0 || log.storage().metadata().after >= end
                {
                    return Ok(all);
                }
            }
            Err(error) if O::is_no_space(&error) && all.segments > 0 => return Ok(all),
            Err(error) => return Err(error),
        }
    }
}

/// One attempt.
fn pass<O: Owner>(log: &Log, owner: &O, effort: Effort) -> Result<Reclaimed, O::Error> {
    let mut done = Reclaimed::default();
    let began = Instant::now();
    let mut spans = log.storage().segments();
    // The newest segment is still written to.
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
    let room = log.write.room_in_reserve().saturating_sub(owner.bytes_before_drop());
    let in_reserve = copies_in(room);
    let most = if effort == Effort::FullDisk { in_reserve } else { COPY_BYTES_MAX };
    let Some(plan) = Plan::new(&usage, size, effort, most, O::CHECKPOINT_GROWS) else {
        return Ok(done);
    };
    if plan.live > 0 {
        let fits = plan.live <= in_reserve;
        let purpose = if fits { Purpose::CopyInReserve } else { Purpose::Copy };
        copy(log, owner, plan.cut, purpose, &mut done)?;
        // A final check: no segment is dropped that the index still names, whatever failed before.
        let (left, _) = numbers(owner, Seq::ZERO, plan.cut)?;
        if let Some(seq) = left.first().copied() {
            return Err(Error::NotFound { seq }.into());
        }
    }
    // Records are dead because others replaced them. Those must survive a crash first.
    if !is_planted(Bug::DropBeforeCopiesAreDurable) {
        log.barrier().and_then(Ticket::blocking_wait).map_err(Error::from)?;
    }
    owner.before_drop(plan.cut)?;
    log.retention().truncate_before(plan.cut).map_err(Error::from)?;
    done.segments = plan.segments as u64;
    done.bytes_freed = plan.bytes;
    Ok(done)
}

/// The bytes of records that can be copied into this many bytes of segments: the rest is for the
/// padding and headers of commit units.
fn copies_in(room: u64) -> u64 {
    room.saturating_sub(room / 16 + COPY_BATCH_BYTES / 4)
}

/// Appends every live record before the cut again.
fn copy<O: Owner>(
    log: &Log,
    owner: &O,
    cut: Seq,
    purpose: Purpose,
    done: &mut Reclaimed,
) -> Result<(), O::Error> {
    let mut from = Seq::ZERO;
    loop {
        let began = Instant::now();
        let (numbers, whole) = numbers(owner, from, cut)?;
        owner.pace(began.elapsed())?;
        let Some(last) = numbers.last().copied() else { return Ok(()) };
        copy_these(log, owner, &numbers, purpose, done)?;
        if whole {
            return Ok(());
        }
        from = last.next();
    }
}

/// The lowest sequence numbers of live records from `from` on and before the cut, in order, and
/// whether these are all.
fn numbers<O: Owner>(owner: &O, from: Seq, cut: Seq) -> Result<(Vec<Seq>, bool), O::Error> {
    let mut numbers = Vec::new();
    let mut end = cut;
    owner.each_live(&mut |live| {
        if live.rewritten || live.seq < from || live.seq >= end {
            return;
        }
        numbers.push(live.seq);
        if numbers.len() >= 2 * LIVE_NUMBERS_MAX {
            numbers.select_nth_unstable(LIVE_NUMBERS_MAX);
            end = numbers[LIVE_NUMBERS_MAX];
            numbers.truncate(LIVE_NUMBERS_MAX);
        }
    })?;
    numbers.sort_unstable();
    numbers.dedup();
    Ok((numbers, end == cut))
}

/// Copies whose durability is not yet confirmed.
struct CopyBatch<K> {
    copies: Vec<(K, Seq, Ticket)>,
    bytes: u64,
    began: Instant,
}

impl<K> CopyBatch<K> {
    fn new() -> Self {
        Self { copies: Vec::new(), bytes: 0, began: Instant::now() }
    }

    /// Waits until the copies are durable, and reports them to the index.
    fn end<O: Owner<Key = K>>(self, owner: &O, done: &mut Reclaimed) -> Result<(), O::Error> {
        let Self { mut copies, bytes, began } = self;
        if let Some((key, from, last)) = copies.pop() {
            let to = match is_planted(Bug::DropBeforeCopiesAreDurable) {
                true => last.seq(),
                false => last.blocking_wait().map_err(Error::from)?.seq,
            };
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

/// Appends again those of these records that are still live.
fn copy_these<O: Owner>(
    log: &Log,
    owner: &O,
    mut numbers: &[Seq],
    purpose: Purpose,
    done: &mut Reclaimed,
) -> Result<(), O::Error> {
    let mut copied = CopyBatch::new();
    let mut stream: Option<LogStream> = None;
    let mut reached = Seq::ZERO;
    while let [next, rest @ ..] = numbers {
        if next.0.saturating_sub(reached.0) > NEAR_NUMBERS {
            stream = None;
        }
        let batch = match &mut stream {
            Some(stream) => stream.try_next(),
            None => log.stream(Start::From(*next)).and_then(|new| stream.insert(new).try_next()),
        };
        let Ok(Some(batch)) = batch else {
            // A record in this batch cannot be read. If that is another record, this one still can.
            let view = log.read(*next).map_err(Error::from)?;
            again(owner, &view.record(), purpose, &mut copied)?;
            (stream, reached, numbers) = (None, *next, rest);
            continue;
        };
        for record in &batch {
            reached = record.seq;
            while let [next, rest @ ..] = numbers
                && *next <= record.seq
            {
                if *next == record.seq {
                    again(owner, &record, purpose, &mut copied)?;
                }
                numbers = rest;
            }
            if copied.bytes >= COPY_BATCH_BYTES {
                std::mem::replace(&mut copied, CopyBatch::new()).end(owner, done)?;
            }
        }
        // Time spent reading only dead records counts too.
        if copied.bytes == 0 {
            std::mem::replace(&mut copied, CopyBatch::new()).end(owner, done)?;
        }
    }
    copied.end(owner, done)
}

fn again<O: Owner>(
    owner: &O,
    record: &Record<'_>,
    purpose: Purpose,
    copied: &mut CopyBatch<O::Key>,
) -> Result<(), O::Error> {
    if let Some((key, ticket)) = owner.append_again(record, purpose)? {
        copied.bytes += stored_size(record.payload.len());
        copied.copies.push((key, record.seq, ticket));
    }
    Ok(())
}
