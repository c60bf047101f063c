//! Copying one segment, and checking the copy.

use std::sync::Arc;

use esker_disk::{AlignedBuf, Dir, File, OpenMode, read_full_at, write_all_at};
use parking_lot::RwLock;

use crate::base::error::Result;
use crate::format::{BLOCK_BYTES, DecodeError, SegmentHeader};
use crate::recovery::{read_footed, read_segment_header};
use crate::store::manifest::{End, Manifest};
use crate::store::paths::{self, Name};
use crate::store::segment_footer::write_footer;
use crate::store::segment_reader::ReadErrors;
use crate::store::segment_scan::{Density, ScanStart, end_of_units, scan};
use crate::store::segment_table::{Segment, State};

/// Bytes that are read and written at once.
const COPY_CHUNK_BYTES: usize = 2 << 20;

/// The result of a copy.
#[derive(Debug)]
pub(super) enum Copied {
    /// The end of the copy, and the session of its last unit.
    Valid(End, u64),
    Invalid(Invalid),
}

/// Why the bytes that were read are not those of a segment that leads to the next one.
#[derive(Debug)]
pub(super) struct Invalid {
    pub(super) offset: u32,
    /// The last record before it.
    pub(super) after: u64,
    pub(super) decode_error: DecodeError,
}

/// Copies a segment up to an offset to a temporary file, durably, and checks it.
pub(super) fn copy(
    dir: &dyn Dir,
    manifest: &Manifest,
    segment: &Segment,
    end: u32,
    next: Option<&SegmentHeader>,
    density: Density,
) -> Result<Copied> {
    let temporary = paths::temporary(&segment.name());
    let file = dir.open(&temporary, OpenMode::create())?;
    file.set_len(0)?;
    copy_bytes(&*segment.reader, &*file, end)?;
    let checked = check(&file, manifest, segment, end, next, density)?;
    let (state, session) = match checked {
        Ok(checked) => checked,
        Err(invalid) => {
            dir.unlink(&temporary)?;
            return Ok(Copied::Invalid(invalid));
        }
    };
    let end =
        End { segment: segment.number(), offset: end, seq: state.last_seq, chain: state.chain };
    if next.is_some() {
        write_footer(&*file, &of_copy(dir, &file, &segment.header, state))?;
    } else {
        file.sync_data()?;
    }
    Ok(Copied::Valid(end, session))
}

fn copy_bytes(from: &dyn File, to: &dyn File, end: u32) -> Result<()> {
    to.preallocate(0, u64::from(end))?;
    let mut buffer = AlignedBuf::lazy_huge(COPY_CHUNK_BYTES);
    let mut at = 0;
    while at < u64::from(end) {
        let wanted = COPY_CHUNK_BYTES.min((u64::from(end) - at) as usize);
        let got =
            read_full_at(from, &mut buffer[..wanted.next_multiple_of(BLOCK_BYTES as usize)], at)?;
        if got == 0 {
            // A shorter copy fails its check.
            break;
        }
        write_all_at(to, &buffer[..got.min(wanted)], at)?;
        at += got as u64;
    }
    Ok(())
}

/// Reads the copy from front to back. Returns its state, and the session of its last unit.
fn check(
    file: &Arc<dyn File>,
    manifest: &Manifest,
    segment: &Segment,
    end: u32,
    next: Option<&SegmentHeader>,
    density: Density,
) -> Result<std::result::Result<(State, u64), Invalid>> {
    let header = &segment.header;
    let invalid = |offset, after, decode_error| Ok(Err(Invalid { offset, after, decode_error }));
    let chain = match read_segment_header(&**file, manifest, header.segment)? {
        Ok((found, chain)) if found == *header => chain,
        _ => return invalid(0, header.prev_seq, DecodeError::Checksum),
    };
    let from = first_unit(header, chain);
    let found = scan(file, from, Some(end), density, &ReadErrors::default())?;
    if found.decode_error.is_some() || found.end != end {
        let decode_error = found.decode_error.unwrap_or(DecodeError::Cut);
        return invalid(found.end, found.seq, decode_error);
    }
    if next.is_some_and(|next| (next.chain, next.prev_seq) != (found.chain, found.seq)) {
        return invalid(found.end, found.seq, DecodeError::Chain);
    }
    let state = State {
        end: found.end,
        last_seq: found.seq,
        chain: found.chain,
        records: found.records,
        payload: Some(found.payload),
        has_gap: found.has_gap,
        time_ms: if found.time_ms == 0 { header.time_ms } else { found.time_ms },
        full: next.is_some(),
        footed: false,
        index: found.index,
    };
    Ok(Ok((state, found.session)))
}

fn first_unit(header: &SegmentHeader, chain: u32) -> ScanStart {
    let SegmentHeader { prev_seq: seq, session, .. } = *header;
    ScanStart { salt: header.salt(), offset: BLOCK_BYTES, chain, seq, session }
}

/// The number of the last record in the newest segment of a directory, whatever its manifest says;
/// 0 if there is none.
pub(super) fn last_record(dir: &dyn Dir, manifest: &Manifest) -> Result<u64> {
    let names = dir.list()?;
    let number = |name: &String| match paths::classify(name) {
        Name::Segment(number) => Some(number),
        _ => None,
    };
    let mut numbers: Vec<_> = names.iter().filter_map(number).collect();
    numbers.sort_unstable();
    for number in numbers.into_iter().rev() {
        let file = dir.open(&paths::segment(number), OpenMode::read())?;
        let Ok((header, chain)) = read_segment_header(&*file, manifest, number)? else { continue };
        let density = Density { bytes: u32::MAX, records: u32::MAX };
        let from = first_unit(&header, chain);
        return Ok(scan(&file, from, None, density, &ReadErrors::default())?.seq);
    }
    Ok(0)
}

/// Whether a directory has all of the segment that this one follows.
pub(super) fn leads_to(dir: &dyn Dir, manifest: &Manifest, next: &SegmentHeader) -> bool {
    let number = next.prev_segment;
    let Ok(file) = dir.open(&paths::segment(number), OpenMode::read()) else { return false };
    let Ok(Ok((header, _))) = read_segment_header(&*file, manifest, number) else { return false };
    let copy = of_copy(dir, &file, &header, State::default());
    read_footed(&copy, next).is_some_and(|state| ends_as(&copy, &state))
}

/// Whether the last units are those that a footer names.
fn ends_as(segment: &Segment, state: &State) -> bool {
    let Some(entry) = state.index.last() else { return false };
    let found = end_of_units(&segment.reader, &segment.header, entry.unit, state.end);
    found.is_some_and(|found| (found.chain, found.seq) == (Some(state.chain), state.last_seq))
}

fn of_copy(dir: &dyn Dir, file: &Arc<dyn File>, header: &SegmentHeader, state: State) -> Segment {
    Segment {
        header: *header,
        salt: header.salt(),
        path: dir.path_of(&paths::segment(header.segment)),
        reader: Arc::clone(file),
        state: RwLock::new(state),
    }
}
