//! Background work: footers, retention, preallocated segments and prewritten blocks. No ticket
//! waits for any of it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use esker_disk::planted::{Bug, is_planted};
use esker_disk::{AlignedBuf, File, Open, write_all_at};

use crate::base::error::{Error, Result, with_causes};
use crate::base::position::Seq;
use crate::commit::preallocator::{CHUNK, Prewriter};
use crate::commit::write_half::WriteHalf;
use crate::format::BLOCK;
use crate::store::paths;
use crate::store::segment_footer::write_footer;
use crate::store::segment_table::Segment;
use crate::store::trim_point::{Trim, TrimPoint};

/// Spare files kept for the next segments.
const SPARES: usize = 2;

/// Does everything that is due, once.
pub(crate) fn maintain(log: &WriteHalf) -> Result<()> {
    let _changing = log.segment_set_lock.lock();
    // Never write to a file whose last write or sync failed.
    if log.is_closed() || log.watermark.is_terminal() {
        return Ok(());
    }
    if log.rotation_pending.swap(false, SeqCst) {
        write_footers(log)?;
        match retain(log) {
            Err(error) if error.is_no_space() => {
                tracing::warn!(
                    error = with_causes(&error),
                    "failed to drop segments; trying again later"
                );
            }
            outcome => outcome?,
        }
    }
    log.reserve_ahead();
    prewrite_ahead(log)
}

/// Writes the footer of each full segment, once a unit of a later segment is durable. Then all
/// units of the full segment are durable, too.
fn write_footers(log: &WriteHalf) -> Result<()> {
    let durable = log.watermark.position();
    let segments = log.segments.all();
    for (segment, next) in segments.iter().zip(segments.iter().skip(1)) {
        let state = segment.state.read();
        let due = state.full && !state.footed;
        drop(state);
        if due && durable > next.header.base {
            match log.dir.open(&segment.name(), Open::write()) {
                Ok(file) => end_segment(log, &*file, segment)?,
                // Opening the log works without a footer; it only takes longer.
                Err(error) => {
                    tracing::warn!(error = with_causes(&error), "failed to write segment footer");
                }
            }
        } else if due {
            log.rotation_pending.store(true, SeqCst);
        }
    }
    Ok(())
}

/// Writes the footer of a full segment, and frees the space reserved past it.
pub(crate) fn end_segment(log: &WriteHalf, file: &dyn File, segment: &Segment) -> Result<()> {
    let end = match write_footer(file, segment) {
        Err(error) if error.is_no_space() => {
            // Its records are so small that the footer exceeds the space reserved for it.
            tracing::warn!(error = with_causes(&error), "failed to write segment footer");
            return Ok(());
        }
        end => end?,
    };
    // A file that will be recycled keeps its blocks.
    if !log.options.retention.is_set() && file.len()? > end {
        file.set_len(end)?;
    }
    Ok(())
}

/// Drops the oldest segments that exceed a retention limit or are wholly below the trim point. The
/// caller holds `segment_set_lock`.
pub(crate) fn retain(log: &WriteHalf) -> Result<()> {
    let retention = &log.options.retention;
    let dropped = log.trim_point.low().seq;
    let segments = log.segments.all();
    let durable = log.watermark.position();
    let size = |segment: &Arc<Segment>| u64::from(segment.state.read().end);
    let records = |segment: &Arc<Segment>| segment.state.read().records;
    let now = Duration::from_millis(log.engine.wall_ms());

    let mut keep = 0;
    let (mut bytes, mut kept_records) = (0, 0);
    for (n, segment) in segments.iter().enumerate().rev() {
        let newest = n + 1 == segments.len();
        // The newest segment counts as full, because it will be.
        bytes += if newest { u64::from(log.options.segment_size) } else { size(segment) };
        let count = (segments.len() - n) as u64;
        let last = Duration::from_millis(segment.state.read().time_ms);
        let over = retention.bytes.is_some_and(|most| bytes > most)
            || retention.segments.is_some_and(|most| count > most)
            || retention.records.is_some_and(|most| kept_records >= most)
            || retention.age.is_some_and(|most| now.saturating_sub(last) > most)
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

/// Removes the segments before `first` from the log: raises the trim point durably, then removes
/// their names.
///
/// Waits until a unit of `first` is durable, and with it the header: the trim point must not name a
/// segment that a crash can lose. Until then a later call does the work.
fn drop_segments_below(log: &WriteHalf, first: &Segment) -> Result<()> {
    if log.watermark.position() <= first.header.base {
        log.rotation_pending.store(true, SeqCst);
        return Ok(());
    }
    if is_planted(Bug::SegmentReusedTooEarly) {
        let segments = log.segments.all();
        let dropped = segments.iter().filter(|segment| segment.number() < first.number());
        for segment in dropped {
            log.dir.open(&segment.name(), Open::write())?.set_len(0)?;
        }
    }
    log.change_manifest(|manifest| {
        manifest.trim_segment = first.number();
        manifest.trim_seq = manifest.trim_seq.max(first.header.prev_seq);
        manifest.durable = manifest.durable.max(log.watermark.seq());
    })?;
    // Raise the trim point first: a reader below it must not look for segments that are gone.
    log.trim_point.raise(Trim { seq: first.header.prev_seq, position: first.header.base });
    let dropped = log.segments.drop_below(first.number());
    if let Some(readers) = log.readers.upgrade() {
        readers.dropped_below(first.number());
    }
    let recycles = log.options.retention.is_set();
    let dropped_any = !dropped.is_empty();
    for segment in dropped {
        let name = segment.name();
        let (number, size) = (segment.number(), segment.state.read().end);
        // A reader may still use this handle; then the bytes must stay.
        let unused = Arc::into_inner(segment).is_some();
        let mut spares = log.spares.lock();
        if recycles && unused && spares.len() < SPARES && size >= log.options.segment_size / 2 {
            match log.dir.rename(&name, &paths::spare(number)) {
                Err(cause) if cause.is_no_space() => log.dir.unlink(&name)?,
                renamed => {
                    renamed?;
                    log.dir.sync()?;
                    spares.push(number);
                }
            }
        } else {
            log.dir.unlink(&name)?;
        }
    }
    if dropped_any {
        log.dir.sync()?;
        log.fill_reserve();
    }
    Ok(())
}

/// Drops every record below `seq`, and frees whole segments.
pub(crate) fn truncate_before(log: &WriteHalf, seq: Seq) -> Result<()> {
    let below = seq.0.saturating_sub(1);
    let _changing = log.segment_set_lock.lock();
    if log.is_closed() {
        return Err(Error::Closed);
    }
    if below <= log.trim_point.low().seq {
        return Ok(());
    }
    // Never write to a directory whose last write or sync failed.
    if let Some(terminal) = log.lock().core.failure() {
        return Err(terminal.refusal());
    }
    // Dropped records must be durable first, or recovery would report them as missing.
    if below > log.watermark.seq() {
        return Err(Error::NotFound { seq });
    }
    let full =
        |error: Error| error.for_want_of_space(log.dir.path(), BLOCK.into(), log.watermark.seq());
    // A reader in another process that sees the new trim point must also see how far the log was
    // durable: what it misses below is repeated there. A commit stores the page only after it has
    // woken its callers.
    let durable = log.lock().core.durable();
    log.watermark_page.lock().store(durable)?;
    log.change_manifest(|manifest| {
        manifest.trim_seq = manifest.trim_seq.max(below);
        manifest.durable = manifest.durable.max(log.watermark.seq());
    })
    .map_err(full)?;
    log.watermark_page.lock().store_trim(below)?;
    log.trim_point.raise(TrimPoint::locate(&log.segments, below));
    let Some(first) = log.segments.of_seq(seq.0) else { return Ok(()) };
    // Only the number: a reference to a segment keeps its file open, and so its space.
    let oldest = log.segments.oldest().map(|oldest| oldest.number());
    match oldest {
        Some(oldest) if first.number() > oldest => drop_segments_below(log, &first).map_err(full),
        _ => Ok(()),
    }
}

/// Prewrites blocks. A full disk is not a failure here; a commit that needs the space reports it.
fn prewrite_ahead(log: &WriteHalf) -> Result<()> {
    // Not kept for the next time: an idle log has no more files open than it needs.
    let mut prewriter = None;
    while let Some(next) = log.preallocator.next_range() {
        match prewrite(log, &mut prewriter, next.segment, &next.range) {
            Err(Error::Io(cause)) if cause.is_no_space() => {
                tracing::warn!(error = with_causes(&cause), "no space to prewrite blocks");
                return Ok(());
            }
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Writes zeros to blocks that no commit has entered.
fn prewrite(
    log: &WriteHalf,
    kept: &mut Option<Prewriter>,
    number: u64,
    range: &Range<u32>,
) -> Result<()> {
    if kept.as_ref().is_none_or(|kept| kept.segment != number) {
        let how = Open::write().direct(log.mode.direct);
        let file = match log.dir.open(&paths::segment(number), how) {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!(
                    error = with_causes(&error),
                    "failed to open a segment to prewrite blocks"
                );
                return Ok(());
            }
        };
        *kept = Some(Prewriter {
            segment: number,
            file,
            zeros: AlignedBuf::lazy(CHUNK.min(log.options.segment_size) as usize),
        });
    }
    let Some(Prewriter { file, zeros, .. }) = kept else {
        return Ok(());
    };
    let len = (range.end - range.start) as usize;
    write_all_at(&**file, &zeros[..len], u64::from(range.start))?;
    Ok(file.sync_data()?)
}
