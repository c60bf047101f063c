//! Retention: what leaves the log at its old end, and how.

use std::sync::{Arc, Weak};
use std::time::Duration;

use esker_disk::OpenMode;
use esker_disk::planted::{Bug, is_planted};

use crate::base::error::{Error, Result, with_causes};
use crate::base::options::Policy;
use crate::base::position::Seq;
use crate::commit::ages::Expired;
use crate::commit::write_half::WriteHalf;
use crate::format::BLOCK_BYTES;
use crate::runtime::engine::CommitWork;
use crate::store::paths;
use crate::store::segment_table::Segment;
use crate::store::trim_point::{Trim, TrimPoint};
use crate::store::unit_times::first_unit_at;

/// Spare files kept for the next segments.
const SPARE_FILES_MAX: usize = 2;
/// How often the age of records is checked: this often in the age of the retention, within limits.
/// Each check that drops records replaces the manifest.
const CHECKS_PER_AGE: u32 = 8;
const CHECK_INTERVAL_MIN: Duration = Duration::from_secs(1);
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Ignores that the disk is full, with a warning: the next maintenance or opening tries again.
pub(crate) fn unless_full(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.is_no_space() => {
            let error = with_causes(&error);
            tracing::warn!(error, "failed to drop records; trying again later");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Drops the oldest segments that exceed a retention limit or are wholly below the trim point. The
/// caller holds `segment_set_lock`.
pub(crate) fn retain(log: &WriteHalf) -> Result<()> {
    let retention = log.retention();
    let dropped = log.segments.trim_point().low().seq;
    let segments = log.segments.table().all();
    let durable = log.watermark.position();
    let size = |segment: &Arc<Segment>| u64::from(segment.state.read().end);
    let records = |segment: &Arc<Segment>| segment.state.read().records;

    let mut keep = 0;
    let (mut bytes, mut kept_records) = (0, 0);
    for (n, segment) in segments.iter().enumerate().rev() {
        let newest = n + 1 == segments.len();
        // The newest segment counts as full, because it will be.
        bytes += if newest { u64::from(log.options.segment_size) } else { size(segment) };
        let count = (segments.len() - n) as u64;
        let over = retention.bytes.is_some_and(|most| bytes > most)
            || retention.segments.is_some_and(|most| count > most)
            || retention.records.is_some_and(|most| kept_records >= most)
            || segment.state.read().last_seq <= dropped;
        let undurable = segment.end_position() > durable;
        if over && !newest && !undurable {
            keep = n + 1;
            break;
        }
        kept_records = records(segment).saturating_add(kept_records);
    }
    let first = segments.get(keep).filter(|_| keep > 0).cloned();
    // A reference to a segment keeps its file from being recycled.
    drop(segments);
    first.map_or(Ok(()), |first| drop_segments_below(log, &first))
}

/// Whether a segment may leave the log once what follows it is durable: there is a limit, or
/// dropped records still take space.
pub(super) fn may_free(log: &WriteHalf) -> bool {
    let dropped = log.segments.trim_point().low().seq;
    let holds_dropped = |oldest: Arc<Segment>| oldest.header.prev_seq < dropped;
    log.retention().is_set() || log.segments.table().oldest().is_some_and(holds_dropped)
}

/// Applies the retention at once, for a caller that found the disk full. Segments that another
/// thread is dropping are gone when this returns. `None` where that thread has not finished and the
/// caller may not wait for it.
pub(super) fn retain_now(log: &WriteHalf, may_wait: bool) -> Result<Option<()>> {
    let changing = match may_wait {
        true => Some(log.change_segments()),
        false => log.try_change_segments(),
    };
    let Some(_changing) = changing else { return Ok(None) };
    // Never write to a directory whose last write or sync failed.
    if !log.is_closed() && !log.watermark.is_terminal() {
        unless_full(retain(log))?;
        unless_full(expire(log))?;
    }
    Ok(Some(()))
}

/// Removes the segments before `first` from the log: raises the trim point durably, then removes
/// their names.
///
/// Waits until a unit of `first` is durable, and with it the header: the trim point must not name a
/// segment that a crash can lose. Until then a later call does the work.
fn drop_segments_below(log: &WriteHalf, first: &Segment) -> Result<()> {
    if log.watermark.position() <= first.header.base {
        log.pending.request_rotation();
        return Ok(());
    }
    if is_planted(Bug::SegmentReusedTooEarly) {
        let segments = log.segments.table().all();
        let dropped = segments.iter().filter(|segment| segment.number() < first.number());
        for segment in dropped {
            log.dir.open(&segment.name(), OpenMode::write())?.set_len(0)?;
        }
    }
    log.change_manifest(|manifest| {
        manifest.trim_segment = first.number();
        manifest.trim_seq = manifest.trim_seq.max(first.header.prev_seq);
        manifest.durable = manifest.durable.max(log.watermark.seq());
    })?;
    // Raise the trim point first: a reader below it must not look for segments that are gone.
    let trim = Trim { seq: first.header.prev_seq, position: first.header.base };
    log.segments.trim_point().raise(trim);
    let dropped = log.segments.table().drop_below(first.number());
    log.segments.notify_readers(first.number());
    let recycles = log.retention().is_set();
    let dropped_any = !dropped.is_empty();
    for segment in dropped {
        let name = segment.name();
        let (number, size) = (segment.number(), segment.state.read().end);
        // A reader may still use this handle; then the bytes must stay.
        let unused = Arc::into_inner(segment).is_some();
        // No other thread adds any: the caller holds `segment_set_lock`.
        let wanted = log.space.spare_count() < SPARE_FILES_MAX;
        let segment_size = log.options.segment_size;
        // A much longer file, of a large record, would take its space for a segment.
        let fits = (segment_size / 2..=segment_size + segment_size / 8).contains(&size);
        if recycles && unused && wanted && fits {
            match log.dir.rename(&name, &paths::spare(number)) {
                Err(cause) if cause.is_no_space() => log.dir.unlink(&name)?,
                renamed => {
                    renamed?;
                    log.dir.sync()?;
                    log.space.add_spare(number);
                }
            }
        } else {
            log.dir.unlink(&name)?;
        }
    }
    if dropped_any {
        log.dir.sync()?;
        log.fill_reserve();
        log.segments.count_drop();
    }
    Ok(())
}

/// Drops the records of units that are older than the retention's age, if a check is due. The
/// caller holds `segment_set_lock`.
pub(super) fn expire_if_due(log: &WriteHalf) -> Result<()> {
    let Some(age) = log.retention().age else { return Ok(()) };
    let now = log.engine.now();
    let next = now + (age / CHECKS_PER_AGE).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX);
    {
        let mut ages = log.segments.lock_ages();
        if ages.due > now {
            return Ok(());
        }
        ages.due = next;
    }
    let again: Weak<dyn CommitWork> = log.weak_self.clone();
    log.engine.maintain_at(next, again);
    expire(log)
}

/// Drops the records of units that are older than the retention's age. The caller holds
/// `segment_set_lock`.
pub(crate) fn expire(log: &WriteHalf) -> Result<()> {
    let Some(age) = log.retention().age else { return Ok(()) };
    // An idle log, too, is to notice that the wall clock was set.
    log.engine.wall_ms();
    let expired = log.segments.lock_ages().older_than(age, log.engine.now());
    let Some(Expired { through, earlier }) = expired else { return Ok(()) };
    let (low, limit) = (log.segments.trim_point().low().seq, log.watermark.position());
    let found = match earlier {
        Some(earlier) => {
            let first = first_unit_at(log.segments.table(), low, limit, earlier.time_ms);
            first.map(|first| first.map_or(0, |first| first.after.min(earlier.last_seq)))
        }
        None => Ok(0),
    };
    let below = found.unwrap_or_else(|error| {
        let error = with_causes(&error);
        tracing::warn!(error, "failed to find the records that are too old");
        0
    });
    drop_up_to(log, below.max(through).min(log.watermark.seq()))
}

/// Drops every record below `seq`, and frees whole segments.
pub(crate) fn truncate_before(log: &WriteHalf, seq: Seq) -> Result<()> {
    let below = seq.0.saturating_sub(1);
    let _changing = log.change_segments();
    if log.is_closed() {
        return Err(Error::Closed);
    }
    drop_up_to(log, below)
}

/// Drops every record up to this one, and frees whole segments. The caller holds
/// `segment_set_lock`.
fn drop_up_to(log: &WriteHalf, below: u64) -> Result<()> {
    if below <= log.segments.trim_point().low().seq {
        return Ok(());
    }
    // Never write to a directory whose last write or sync failed.
    if let Some(terminal) = log.lock().core.failure() {
        return Err(terminal.refusal().into());
    }
    // Dropped records must be durable first, or recovery would report them as missing.
    if below > log.watermark.seq() {
        return Err(Error::NotFound { seq: Seq(below.saturating_add(1)) });
    }
    let full = |error: Error| {
        error.for_want_of_space(log.dir.path(), BLOCK_BYTES.into(), log.watermark.seq())
    };
    // A reader in another process that sees the new trim point must also see how far the log was
    // durable: what it misses below is repeated there. It does: a commit stores the watermark page
    // before anyone learns that it ended.
    log.change_manifest(|manifest| {
        manifest.trim_seq = manifest.trim_seq.max(below);
        manifest.durable = manifest.durable.max(log.watermark.seq());
    })
    .map_err(full)?;
    let mut page = log.watermark_page.lock();
    let stored = page.store_trim(below)?;
    // Under `OsBuffered` one slot has to be durable at any time, so the page is held until this one
    // is. Under the other policies no commit waits for this sync.
    let page = (log.options.policy == Policy::OsBuffered).then_some(page);
    stored.sync_data()?;
    drop(page);
    log.segments.trim_point().raise(TrimPoint::locate(log.segments.table(), below));
    let next = log.segments.table().of_seq(below.saturating_add(1));
    let first = next.map_or_else(|| log.newest_segment(), Ok)?;
    match log.segments.table().oldest_number() {
        Some(oldest) if first.number() > oldest => drop_segments_below(log, &first).map_err(full),
        _ => Ok(()),
    }
}
