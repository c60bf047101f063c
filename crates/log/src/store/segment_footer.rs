//! The footer of a segment, and writing that of a full one.

use esker_disk::write_all_at;

use crate::base::error::Result;
use crate::format::{BLOCK_BYTES, Footer};
use crate::store::segment_table::{Segment, State};

/// Index entries whose bytes opening checks before a clean end.
const CHECKED_ENTRIES: u32 = 4;
/// Index entries of a footer that the manifest keeps: 240 KiB. With more of them, opening scans the
/// segment.
const KEPT_ENTRIES_MAX: usize = 10_000;

/// The offset from which opening checks a segment with a clean end, or from an indexed unit before
/// it. `None`: the segment is so short that it is scanned whole.
pub(crate) fn checked_from(end: u32, index_bytes: u32) -> Option<u32> {
    end.checked_sub(CHECKED_ENTRIES * index_bytes).filter(|from| *from > BLOCK_BYTES)
}

/// The footer of the segment where a log ends that is being closed, if the manifest keeps it.
pub(crate) fn closing_footer(segment: &Segment, index_bytes: u32) -> Option<Footer> {
    let footer = footer_of(segment);
    checked_from(footer.end, index_bytes)?;
    (footer.index.len() <= KEPT_ENTRIES_MAX).then_some(footer)
}

/// The footer of a segment as it is now.
fn footer_of(segment: &Segment) -> Footer {
    let state = segment.state.read();
    let State { end, last_seq, chain, records, payload, has_gap, time_ms, ref index, .. } = *state;
    Footer {
        end,
        records,
        prev_seq: segment.header.prev_seq,
        last_seq,
        session: segment.header.session,
        time_ms,
        chain,
        payload,
        has_gap,
        index: index.clone(),
    }
}

/// Writes the footer of a segment that is full and durable, and makes the footer durable. Returns
/// the offset after it.
pub(crate) fn write_footer(file: &dyn esker_disk::File, segment: &Segment) -> Result<u64> {
    let bytes = footer_of(segment).to_bytes(segment.salt);
    let end = u64::from(segment.state.read().end);
    write_all_at(file, &bytes, end)?;
    file.sync_data()?;
    let mut state = segment.state.write();
    state.full = true;
    state.footed = true;
    Ok(end + bytes.len() as u64)
}
