//! Writing the footer of a full segment.

use esker_disk::write_all_at;

use crate::base::error::Result;
use crate::format::Footer;
use crate::store::segment_table::{Segment, State};

/// Writes the footer of a segment that is full and durable, and makes the footer durable. Returns
/// the offset after it.
pub(crate) fn write_footer(file: &dyn esker_disk::File, segment: &Segment) -> Result<u64> {
    let bytes = {
        let state = segment.state.read();
        let State { end, last_seq, chain, records, time_ms, ref index, .. } = *state;
        let footer = Footer {
            end,
            records,
            prev_seq: segment.header.prev_seq,
            last_seq,
            session: segment.header.session,
            time_ms,
            chain,
            index: index.clone(),
        };
        footer.to_bytes(segment.salt)
    };
    let end = u64::from(segment.state.read().end);
    write_all_at(file, &bytes, end)?;
    file.sync_data()?;
    let mut state = segment.state.write();
    state.full = true;
    state.footed = true;
    Ok(end + bytes.len() as u64)
}
