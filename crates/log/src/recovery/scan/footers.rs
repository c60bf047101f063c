//! The content of a segment that is not read whole: according to its footer, or to the one that a
//! clean close kept in the manifest.

use std::sync::Arc;

use esker_disk::{AlignedBuf, Dir, File, Read, read_full_at};

use super::files::{Headers, SEGMENTS_PER_READ};
use crate::base::read_options::ReadOptions;
use crate::format::footer::FOOTER_HEADER_BYTES;
use crate::format::{Footer, SegmentHeader};
use crate::store::manifest::Manifest;
use crate::store::segment_footer::checked_from;
use crate::store::segment_scan::end_of_units;
use crate::store::segment_table::{Segment, State};

/// The bytes of a footer that are read at once: those of a segment of 64 MiB have less.
const FOOTER_READ: u32 = 32 << 10;

/// The states from the footers of some segments, each with the header of the next one, which have
/// to agree.
pub(super) fn footers(
    dir: &dyn Dir,
    headers: &Headers,
    pairs: &[(SegmentHeader, SegmentHeader)],
) -> Vec<Option<State>> {
    pairs.chunks(SEGMENTS_PER_READ).flat_map(|pairs| some_footers(dir, headers, pairs)).collect()
}

fn some_footers(
    dir: &dyn Dir,
    headers: &Headers,
    pairs: &[(SegmentHeader, SegmentHeader)],
) -> Vec<Option<State>> {
    let place = |(header, next): &(SegmentHeader, SegmentHeader)| {
        let end = next.base.checked_sub(header.base)? as u32;
        Some((&headers.get(&header.segment)?.0, end))
    };
    let places: Vec<_> = pairs.iter().map(place).collect();
    let mut blocks: Vec<_> = places.iter().map(|_| AlignedBuf::new(FOOTER_READ as usize)).collect();
    let mut reads: Vec<_> = places
        .iter()
        .zip(&mut blocks)
        .filter_map(|(place, buf)| Some((place.as_ref()?, buf)))
        .map(|((file, end), buf)| Read { file: &***file, buf, offset: u64::from(*end) })
        .collect();
    let mut read = dir.read_each(&mut reads).into_iter();
    let footers = places.into_iter().zip(pairs).zip(&blocks);
    footers
        .map(|((place, (header, next)), block)| {
            let (file, end) = place?;
            let got = read.next()?.ok()?;
            agreed(parse_footer(file, header, end, &block[..got])?, header, next)
        })
        .collect()
}

/// The state of the segment where a log ends that was closed cleanly, if the manifest has its
/// footer, and the last units are as they were written.
pub(super) fn closed(
    dir: &dyn Dir,
    manifest: &Manifest,
    options: &ReadOptions,
    header: &SegmentHeader,
    file: &Arc<dyn File>,
) -> Option<State> {
    let clean = manifest.clean.filter(|clean| clean.segment == header.segment)?;
    let from = checked_from(clean.offset, options.index_bytes)?;
    if file.len().ok()? < u64::from(clean.offset) {
        return None;
    }
    let footer = manifest.footer(dir, header.salt())?;
    let before = footer.index.partition_point(|entry| entry.unit <= from);
    let last_units = footer.index.get(before.checked_sub(1)?)?.unit;
    let found = end_of_units(file, header, last_units, clean.offset)?;
    let ends = footer.prev_seq == header.prev_seq
        && (found.chain, found.seq) == (Some(clean.chain), clean.seq);
    ends.then(|| State { full: false, footed: false, ..state_of(footer) })
}

/// As in [`footers`], for a segment that is being read.
pub(crate) fn read_footed(segment: &Segment, next: &SegmentHeader) -> Option<State> {
    let header = &segment.header;
    let end = next.base.checked_sub(header.base)? as u32;
    let mut block = AlignedBuf::new(FOOTER_READ as usize);
    let got = read_full_at(&*segment.reader, &mut block, u64::from(end)).ok()?;
    agreed(parse_footer(&segment.reader, header, end, &block[..got])?, header, next)
}

/// The state of a segment that has this footer, if the next segment's header agrees.
fn agreed(footer: Footer, header: &SegmentHeader, next: &SegmentHeader) -> Option<State> {
    let agrees = footer.last_seq == next.prev_seq
        && footer.chain == next.chain
        && footer.prev_seq == header.prev_seq;
    agrees.then(|| state_of(footer))
}

fn state_of(footer: Footer) -> State {
    State {
        end: footer.end,
        last_seq: footer.last_seq,
        chain: footer.chain,
        records: footer.records,
        payload: footer.payload,
        has_gap: footer.has_gap,
        time_ms: footer.time_ms,
        full: true,
        footed: true,
        index: footer.index,
    }
}

/// The footer at `end`, if it is valid. `first` has the first bytes from there.
fn parse_footer(
    file: &Arc<dyn File>,
    header: &SegmentHeader,
    end: u32,
    first: &[u8],
) -> Option<Footer> {
    if first.len() < FOOTER_HEADER_BYTES {
        return None;
    }
    let length = Footer::length(first, end).ok()? as usize;
    if length <= first.len() {
        return Footer::parse(&first[..length], header.salt(), end).ok();
    }
    let mut bytes = AlignedBuf::new(length);
    let got = read_full_at(&**file, &mut bytes, u64::from(end)).ok()?;
    Footer::parse(&bytes[..got], header.salt(), end).ok()
}
