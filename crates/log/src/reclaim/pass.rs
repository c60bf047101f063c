//! One pass: it copies the live records of the oldest segments, and drops those.

use std::time::Instant;

use esker_disk::planted::{Bug, is_planted};

use super::owner::{
    COPY_BATCH_BYTES, COPY_BYTES_MAX, LIVE_NUMBERS_MAX, Owner, Reclaimed, stored_size,
};
use super::plan::{Effort, Plan, Usage};
use crate::base::error::Error;
use crate::base::log_error::refuse_if_forked;
use crate::base::position::Seq;
use crate::base::purpose::Purpose;
use crate::log::Log;
use crate::read::batch::Record;
use crate::read::cursor::Start;
use crate::read::stream::LogStream;
use crate::write::ticket::Ticket;

/// If the next live record is at most this many sequence numbers away, the read continues over the
/// dead records between; otherwise a new read begins.
const NEAR_NUMBERS: u64 = 4096;

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

/// Repeats the pass while live segments are only moved away from the front, because that alone
/// makes no room. It ends with the segments that exist now.
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

/// Takes the steps of the module's crash argument once.
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
