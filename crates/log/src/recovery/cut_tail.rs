//! Cutting off what follows the records of a segment.

use esker_disk::{Dir, File, OpenMode};

use super::live::LiveSegment;
use super::outcome::TruncatedTail;
use crate::base::error::Result;
use crate::store::segment_footer::write_footer;

/// Cuts off the bytes of a segment's file from `end` on, durably.
pub(super) fn cut_file(file: &dyn File, end: u64) -> Result<()> {
    file.set_len(end)?;
    Ok(file.sync_data()?)
}

/// Cuts off the bytes after the end of a cleanly closed log: they do not belong to it.
pub(super) fn cut_after_clean_end(
    dir: &dyn Dir,
    live: &[LiveSegment],
) -> Result<Option<TruncatedTail>> {
    let Some(newest) = live.last() else {
        return Ok(None);
    };
    let end = u64::from(newest.segment.state.read().end);
    if newest.file_len <= end {
        return Ok(None);
    }
    cut_file(&*dir.open(&newest.segment.name(), OpenMode::write())?, end)?;
    let what = "the log was closed before these bytes".into();
    let file = newest.segment.path.clone();
    Ok(Some(TruncatedTail { file, offset: end, bytes: newest.file_len - end, what }))
}

/// Truncates a segment that is not the newest at its end, and writes its footer.
pub(super) fn finish_segment(dir: &dyn Dir, live: &LiveSegment) -> Result<()> {
    let segment = &live.segment;
    if segment.state.read().footed {
        return Ok(());
    }
    let file = dir.open(&segment.name(), OpenMode::write())?;
    let end = u64::from(segment.state.read().end);
    if live.file_len > end {
        cut_file(&*file, end)?;
    }
    match write_footer(&*file, segment) {
        // The footer is optional.
        Err(error) if error.is_no_space() => Ok(()),
        end => end.map(drop),
    }
}
