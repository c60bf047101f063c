//! Entry points for the fuzz targets and the property tests: every decoder, over any bytes.

use crate::format::decode::{Found, Records, check_unit, find};
use crate::format::{BLOCK, Footer, LogId, Salt, SegmentHeader, UnitHeader};
use crate::store::manifest::Manifest;
use crate::store::{sealed_file, watermark_page};

/// Runs every decoder over the bytes of a segment and returns the number of valid records. Must
/// return for any input.
pub fn decode_segment(bytes: &[u8]) -> u64 {
    let number = 1;
    let log = SegmentHeader::log_of(bytes, number).unwrap_or(LogId([0; 16]));
    let salt = Salt::new(log, number);
    let mut valid = 0;
    let mut offset = 0u32;
    while let Some(rest) = bytes.get(offset as usize..).filter(|rest| !rest.is_empty()) {
        let unit = check_unit(rest, salt, offset, |_| valid += 1);
        if let Ok(length) = Footer::length(rest, offset) {
            let _ = Footer::parse(rest.get(..length as usize).unwrap_or(rest), salt, offset);
        }
        let walked = Records::new(rest, offset, 0).take(1 << 16).count() as u64;
        if let Ok((header, _)) = unit {
            debug_assert!(walked >= u64::from(header.records).min(1 << 16));
        }
        if let Found::Record(record) = find(rest, offset, salt, (0, 0), valid) {
            debug_assert!(record.offset >= offset);
        }
        offset += match UnitHeader::parse(rest, salt, offset) {
            Ok((header, _)) => header.span().max(BLOCK),
            Err(_) => BLOCK,
        };
    }
    valid
}

/// Runs the decoders of the small files over the bytes: sealed files, with the manifest in them,
/// and slots of the watermark page. Returns how many of them accept the bytes. Must return for any
/// input.
pub fn decode_file(bytes: &[u8]) -> usize {
    let sealed = sealed_file::parse(bytes.to_vec(), |_| true).ok();
    let content = sealed.as_ref().map_or(bytes, |(_, content)| content);
    let manifest = Manifest::parse(content).is_ok();
    usize::from(sealed.is_some())
        + usize::from(manifest)
        + usize::from(watermark_page::is_valid_slot(bytes))
}
