//! Background work: footers, retention, preallocated segments and prewritten blocks. No ticket
//! waits for any of it.

use std::ops::Range;
use std::sync::Weak;

use esker_disk::{AlignedBuf, File, OpenMode, write_all_at};

use crate::base::error::{Error, Result, with_causes};
use crate::commit::preallocator::{AfterBurst, PREWRITE_BYTES_MAX, Prewriter};
use crate::commit::retention::{expire_if_due, retain, unless_full};
use crate::commit::write_half::WriteHalf;
use crate::runtime::engine::CommitWork;
use crate::store::paths;
use crate::store::segment_footer::write_footer;
use crate::store::segment_table::Segment;

/// The part of a segment's size that its file may have unused at its end, in a log with a
/// retention.
const UNUSED_PART: u64 = 8;

/// Does everything that is due, once.
pub(crate) fn maintain(log: &WriteHalf) -> Result<()> {
    let _changing = log.change_segments();
    // Never write to a file whose last write or sync failed.
    if log.is_closed() || log.watermark.is_terminal() {
        return Ok(());
    }
    if log.pending.take_rotation() {
        write_footers(log)?;
        unless_full(retain(log))?;
    }
    unless_full(expire_if_due(log))?;
    log.preallocate_ahead();
    prewrite_ahead(log)?;
    prewrite_after_burst(log)
}

/// Writes the footer of each full segment, once a unit of a later segment is durable. Then all
/// units of the full segment are durable, too.
fn write_footers(log: &WriteHalf) -> Result<()> {
    let durable = log.watermark.position();
    let segments = log.segments.table().all();
    for (segment, next) in segments.iter().zip(segments.iter().skip(1)) {
        let state = segment.state.read();
        let due = state.full && !state.footed;
        drop(state);
        if due && durable > next.header.base {
            match log.dir.open(&segment.name(), OpenMode::write()) {
                Ok(file) => end_segment(log, &*file, segment)?,
                // Opening the log works without a footer; it only takes longer.
                Err(error) => {
                    tracing::warn!(error = with_causes(&error), "failed to write segment footer");
                }
            }
        } else if due {
            log.pending.request_rotation();
        }
    }
    Ok(())
}

/// Writes the footer of a full segment, and frees the space preallocated past it.
pub(crate) fn end_segment(log: &WriteHalf, file: &dyn File, segment: &Segment) -> Result<()> {
    let end = match write_footer(file, segment) {
        Err(error) if error.is_no_space() => {
            // Its records are so small that the footer exceeds the space preallocated for it.
            tracing::warn!(error = with_causes(&error), "failed to write segment footer");
            return Ok(());
        }
        end => end?,
    };
    // A file that will be recycled keeps its blocks, unless so many are unused that a ring would
    // take much more than its limit.
    let unused = file.len()?.saturating_sub(end);
    let allowed = match log.retention().is_set() {
        true => u64::from(log.options.segment_size) / UNUSED_PART,
        false => 0,
    };
    if unused > allowed {
        file.set_len(end)?;
    }
    Ok(())
}

/// Prewrites blocks. A full disk is not a failure here; a commit that needs the space reports it.
fn prewrite_ahead(log: &WriteHalf) -> Result<()> {
    // Not kept for the next time: an idle log has no more files open than it needs.
    let mut prewriter = None;
    while let Some(next) = log.space.preallocator().next_range() {
        if !prewrite_if_room(log, &mut prewriter, next.segment, &next.range)? {
            break;
        }
    }
    Ok(())
}

/// Prewrites one range after a burst, so that the locks and the thread are free between two of
/// them.
fn prewrite_after_burst(log: &WriteHalf) -> Result<()> {
    let now = log.engine.now();
    let next = match log.space.preallocator().after_burst(now) {
        AfterBurst::Nothing => return Ok(()),
        AfterBurst::Look(at) => at,
        AfterBurst::Prewrite(next) => {
            if !prewrite_if_room(log, &mut None, next.segment, &next.range)? {
                drop(next);
                log.space.preallocator().end_burst();
                return Ok(());
            }
            now
        }
    };
    let again: Weak<dyn CommitWork> = log.weak_self.clone();
    log.engine.maintain_at(next, again);
    Ok(())
}

/// As [`prewrite`]; `false` also where the disk is full.
fn prewrite_if_room(
    log: &WriteHalf,
    kept: &mut Option<Prewriter>,
    number: u64,
    range: &Range<u32>,
) -> Result<bool> {
    match prewrite(log, kept, number, range) {
        Err(Error::Io(cause)) if cause.is_no_space() => {
            tracing::warn!(error = with_causes(&cause), "no space to prewrite blocks");
            Ok(false)
        }
        outcome => outcome,
    }
}

/// Writes zeros to blocks that no commit has entered; `false` where the file cannot be opened.
fn prewrite(
    log: &WriteHalf,
    kept: &mut Option<Prewriter>,
    number: u64,
    range: &Range<u32>,
) -> Result<bool> {
    kept.take_if(|kept| kept.segment != number);
    let Prewriter { file, zeros, .. } = match kept {
        Some(kept) => kept,
        None => match open_prewriter(log, number) {
            Ok(prewriter) => kept.insert(prewriter),
            Err(error) => {
                tracing::warn!(
                    error = with_causes(&error),
                    "failed to open a segment to prewrite blocks"
                );
                return Ok(false);
            }
        },
    };
    let len = (range.end - range.start) as usize;
    write_all_at(&**file, &zeros[..len], u64::from(range.start))?;
    file.sync_data()?;
    Ok(true)
}

fn open_prewriter(log: &WriteHalf, segment: u64) -> esker_disk::Result<Prewriter> {
    let how = OpenMode::write().direct(log.mode.direct);
    let file = log.dir.open(&paths::segment(segment), how)?;
    let zeros = AlignedBuf::lazy(PREWRITE_BYTES_MAX.min(log.options.segment_size) as usize);
    Ok(Prewriter { segment, file, zeros })
}
