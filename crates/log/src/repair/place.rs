//! Where a segment begins that lost its header.

use std::sync::Arc;

use super::examined::Examined;
use crate::error::Result;
use crate::format::{BLOCK, Footer, SEGMENT_MAX, Salt, SegmentHeader};
use crate::image::{Image, Trouble};
use crate::manifest::Manifest;
use crate::scan::strays;

/// The footer of a segment, wherever in the file it stands: what a segment that lost its header, or
/// its successor, is known by.
pub(crate) fn find_footer(segment: &Examined, manifest: &Manifest) -> Result<Option<Footer>> {
    let Some(file) = &segment.file else {
        return Ok(None);
    };
    let salt = Salt::new(manifest.log, segment.number);
    let mut image = Image::new(Arc::clone(file))?;
    let mut at = BLOCK;
    while u64::from(at) < image.len() {
        let head = image.at(u64::from(at), BLOCK as usize)?;
        if let Ok(length) = Footer::length(head, at) {
            let bytes = image.at(u64::from(at), length as usize)?;
            if let Ok(footer) = Footer::parse(bytes, salt, at) {
                return Ok(Some(footer));
            }
        }
        at += BLOCK;
    }
    Ok(None)
}

/// Where the oldest segment begins, when its header is damaged: its footer tells, or what stands
/// behind it, or its own units.
pub(crate) fn first_place(
    segment: &Examined,
    footer: Option<&Footer>,
    next: Option<&SegmentHeader>,
    manifest: &Manifest,
) -> Result<(u64, u64)> {
    let base = |end: u32| next.map_or(0, |next| next.base.saturating_sub(u64::from(end)));
    if let Some(footer) = footer {
        return Ok((base(footer.end), footer.prev_seq));
    }
    let Some(file) = &segment.file else {
        return Ok((0, manifest.floor_seq));
    };
    let salt = Salt::new(manifest.log, segment.number);
    let (mut first, mut end) = (None, BLOCK);
    strays(file, salt, BLOCK, None, &Trouble::default(), |stray, whole| {
        if whole {
            first.get_or_insert((stray.offset, stray.header.prev_seq));
            end = stray.offset + stray.header.span();
        }
    })?;
    let prev_seq = match first {
        Some((BLOCK, prev_seq)) => prev_seq,
        // What stood before the first sound unit is lost, as far as the floor.
        Some((_, prev_seq)) => prev_seq.min(manifest.floor_seq),
        None => {
            // Nothing is sound: the file's length is what is left to go by.
            let most = u64::from(SEGMENT_MAX / 2);
            end = file.len()?.clamp(u64::from(BLOCK), most) as u32 / BLOCK * BLOCK;
            manifest.floor_seq
        }
    };
    Ok((base(end), prev_seq))
}
