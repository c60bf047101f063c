//! Locates the start of a segment that lost its header.

use std::ops::Range;
use std::sync::Arc;

use esker_disk::File;

use super::examined_segment::{ExaminedSegment, KnownStart};
use crate::base::error::Result;
use crate::format::footer::FOOTER_HEADER_BYTES;
use crate::format::{BLOCK_BYTES, Footer, SEGMENT_MAX, Salt, SegmentHeader, is_zero};
use crate::recovery::range_sums::RangeChecks;
use crate::store::manifest::Manifest;
use crate::store::segment_reader::{ReadErrors, SegmentReader};
use crate::store::segment_scan::orphan_units;

/// The footer of a segment, at any block of the file. It locates a segment that lost its header, or
/// whose successor did.
pub(crate) fn find_footer(
    segment: &ExaminedSegment,
    manifest: &Manifest,
) -> Result<Option<Footer>> {
    match &segment.file {
        Some(file) => footer_in(file, Salt::new(manifest.log, segment.number)),
        None => Ok(None),
    }
}

/// Reads a few times the length of the file at most, whatever its bytes are: bytes that look like a
/// footer cost a block, unless they have its checksum.
fn footer_in(file: &Arc<dyn File>, salt: Salt) -> Result<Option<Footer>> {
    let mut image = SegmentReader::new(Arc::clone(file))?;
    let mut checks = RangeChecks::default();
    let (mut at, mut in_vain) = (BLOCK_BYTES, 0);
    while u64::from(at) < image.len() {
        let header = image.at(u64::from(at), BLOCK_BYTES as usize)?;
        if let Ok((entries, sum)) = Footer::entries(header, salt, at)
            && checks.has_sum(&mut image, at.into(), FOOTER_HEADER_BYTES as u32, entries, sum)?
        {
            if let Some((footer, _)) = footer_at(&mut image, salt, at)? {
                return Ok(Some(footer));
            }
            // The checksum is that of a footer, and the content is not. No writer makes these.
            in_vain += u64::from(entries);
            if in_vain > image.len() {
                break;
            }
        }
        at += BLOCK_BYTES;
    }
    Ok(None)
}

fn footer_at(image: &mut SegmentReader<'_>, salt: Salt, at: u32) -> Result<Option<(Footer, u32)>> {
    let block = image.at(u64::from(at), BLOCK_BYTES as usize)?;
    let Ok(length) = Footer::length(block, at) else { return Ok(None) };
    let bytes = image.at(u64::from(at), length as usize)?;
    Ok(Footer::parse(bytes, salt, at).ok().map(|footer| (footer, length)))
}

/// Whether there is a valid footer at an offset.
pub(super) fn is_footer_at(file: &Arc<dyn File>, salt: Salt, at: u32) -> Result<bool> {
    let mut image = SegmentReader::new(Arc::clone(file))?;
    Ok(footer_at(&mut image, salt, at)?.is_some())
}

/// The bytes that are lost if a file is cut at an offset. A footer there is not among them: it
/// holds nothing that the units do not.
pub(crate) fn cut_off(file: &Arc<dyn File>, salt: Salt, at: u32) -> Result<Option<Range<u32>>> {
    let mut image = SegmentReader::new(Arc::clone(file))?;
    let footer = footer_at(&mut image, salt, at)?.map_or(0, |(_, length)| length);
    written_after(file, at + footer)
}

/// The valid units of a segment without a header.
pub(super) struct Units {
    /// The offset of the first unit, and the sequence number before it.
    pub(super) first: (u32, u64),
    pub(super) end: u32,
    pub(super) last_seq: u64,
}

fn units(segment: &ExaminedSegment, manifest: &Manifest) -> Result<Option<Units>> {
    match &segment.file {
        Some(file) => units_up_to(file, Salt::new(manifest.log, segment.number), u64::MAX),
        None => Ok(None),
    }
}

fn units_up_to(file: &Arc<dyn File>, salt: Salt, seq: u64) -> Result<Option<Units>> {
    let mut units: Option<Units> = None;
    orphan_units(file, salt, BLOCK_BYTES, None, &ReadErrors::default(), |orphan, whole| {
        if whole && orphan.header.last_seq <= seq {
            let first = units.as_ref().map_or((orphan.offset, orphan.header.prev_seq), |u| u.first);
            let end = orphan.offset + orphan.header.span();
            units = Some(Units { first, end, last_seq: orphan.header.last_seq });
        }
    })?;
    Ok(units)
}

/// The contents of a segment up to a record, by its footer or its valid units. Later units are
/// dead.
pub(super) fn content(file: &Arc<dyn File>, salt: Salt, seq: u64) -> Result<Option<Units>> {
    match footer_in(file, salt)?.filter(|footer| footer.last_seq <= seq) {
        Some(Footer { end, prev_seq, last_seq, .. }) => {
            Ok(Some(Units { first: (BLOCK_BYTES, prev_seq), end, last_seq }))
        }
        None => units_up_to(file, salt, seq),
    }
}

/// Whether a file holds the header of a unit that was written to this segment. Blocks that cannot
/// be read are noted: there may be units in them.
pub(super) fn has_own_units(
    file: &Arc<dyn File>,
    salt: Salt,
    read_errors: &ReadErrors,
) -> Result<bool> {
    let mut found = false;
    orphan_units(file, salt, BLOCK_BYTES, None, read_errors, |_, _| found = true)?;
    Ok(found)
}

/// The start of a segment whose header is corrupt, from its footer or its own units. `next` is the
/// header of the next segment.
pub(crate) fn known_start(
    segment: &ExaminedSegment,
    footer: Option<&Footer>,
    next: Option<&SegmentHeader>,
    manifest: &Manifest,
) -> Result<KnownStart> {
    let base = |end: u32| next.and_then(|next| next.base.checked_sub(u64::from(end)));
    if let Some(footer) = footer {
        return Ok(KnownStart { base: base(footer.end), prev_seq: Some(footer.prev_seq) });
    }
    let Some(units) = units(segment, manifest)? else {
        return Ok(KnownStart::default());
    };
    let leads_on = next.is_some_and(|next| next.prev_seq == units.last_seq);
    let (offset, prev_seq) = units.first;
    Ok(KnownStart {
        base: base(units.end).filter(|_| leads_on),
        prev_seq: (offset == BLOCK_BYTES).then_some(prev_seq),
    })
}

/// The start of the oldest segment, if its header is corrupt: from its footer, from the next
/// segment, or from its own units.
pub(crate) fn first_position(
    segment: &ExaminedSegment,
    footer: Option<&Footer>,
    next: Option<&SegmentHeader>,
    manifest: &Manifest,
) -> Result<(u64, u64)> {
    let base = |end: u32| next.map_or(0, |next| next.base.saturating_sub(u64::from(end)));
    if let Some(footer) = footer {
        return Ok((base(footer.end), footer.prev_seq));
    }
    let Some(file) = &segment.file else {
        return Ok((0, manifest.trim_seq));
    };
    let Some(units) = units(segment, manifest)? else {
        // Nothing is valid, so only the file's length is left. There must be room for a gap.
        let (least, most) = (u64::from(2 * BLOCK_BYTES), u64::from(SEGMENT_MAX / 2));
        let end = file.len()?.clamp(least, most) as u32 / BLOCK_BYTES * BLOCK_BYTES;
        return Ok((base(end), manifest.trim_seq));
    };
    let prev_seq = match units.first {
        (BLOCK_BYTES, prev_seq) => prev_seq,
        // The records before the first valid unit are lost, down to the trim point.
        (_, prev_seq) => prev_seq.min(manifest.trim_seq),
    };
    // If the last unit does not lead to the next segment, a gap follows it.
    let room =
        if next.is_some_and(|next| next.prev_seq > units.last_seq) { BLOCK_BYTES } else { 0 };
    Ok((base(units.end + room), prev_seq))
}

/// The end of the last block of a file that is not all zeros.
pub(super) fn written_to(file: &Arc<dyn File>) -> Result<u32> {
    Ok(written_after(file, 0)?.map_or(0, |written| written.end))
}

/// From the first block at or after an offset that is not all zeros to the end of the last one.
fn written_after(file: &Arc<dyn File>, offset: u32) -> Result<Option<Range<u32>>> {
    let mut image = SegmentReader::new(Arc::clone(file))?;
    let (mut at, mut written) = (offset, None);
    while u64::from(at) < image.len() {
        let block = image.at(u64::from(at), BLOCK_BYTES as usize)?;
        let end = at + BLOCK_BYTES;
        if !is_zero(block) {
            written = Some(written.map_or(at, |written: Range<u32>| written.start)..end);
        }
        at = end;
    }
    Ok(written)
}
