//! Entry points for the fuzz targets and the property tests: every decoder, over any bytes.

use crate::consumers::offsets;
use crate::format::decode::{Records, SearchResult, check_unit, find};
use crate::format::{BLOCK_BYTES, Footer, LogId, Salt, SegmentHeader, UnitHeader};
use crate::store::manifest::Manifest;
use crate::store::{chunked_file, sealed_file, watermark_page};

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
        if let SearchResult::Record(record) = find(rest, offset, salt, (0, 0), valid) {
            debug_assert!(record.offset >= offset);
        }
        offset += match UnitHeader::parse(rest, salt, offset) {
            Ok((header, _)) => header.span().max(BLOCK_BYTES),
            Err(_) => BLOCK_BYTES,
        };
    }
    valid
}

/// Runs the decoders of the small files over the bytes: sealed files, with the manifest and the
/// offsets of consumers in them, and slots of the watermark page. Returns how many of them accept
/// the bytes. Must return for any input.
pub fn decode_file(bytes: &[u8]) -> usize {
    let sealed = sealed_file::parse(bytes.to_vec(), |_| true).ok();
    let content = sealed.as_ref().map_or(bytes, |(_, content)| content);
    let manifest = Manifest::parse(content).is_ok();
    let offsets = offsets::decode(content).is_some();
    usize::from(sealed.is_some())
        + usize::from(manifest)
        + usize::from(offsets)
        + usize::from(watermark_page::is_valid_slot(bytes))
}

/// Runs the decoders of a checkpoint's file over the bytes, as a header and as a chunk: as they
/// are, and with a checksum that matches. Returns how many times they are accepted. Must return for
/// any input.
pub fn decode_checkpoint(bytes: &[u8]) -> usize {
    chunked_file::decode_any(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_checkpoint_or_not(
            len in prop_oneof![0u32..100, Just(2 << 20), any::<u32>()],
            fields in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..120),
            note in prop_oneof![0u32..100, 3760u32..3780, any::<u32>()],
            samples in prop_oneof![0u32..100, any::<u32>()],
            cut in 0usize..5000,
        ) {
            let mut bytes = fields;
            bytes.resize(bytes.len().max(56), 0);
            bytes[4..8].copy_from_slice(&len.to_le_bytes());
            bytes[52..56].copy_from_slice(&note.to_le_bytes());
            bytes.resize(4096, 7);
            bytes[3832..3836].copy_from_slice(&samples.to_le_bytes());
            bytes.truncate(cut);
            let accepted = decode_checkpoint(&bytes);
            let header = cut >= 4096 && note as usize <= 3824 - 56 && samples <= 64;
            let chunk = len as usize + 32 <= bytes.len();
            prop_assert_eq!(accepted, usize::from(header) + usize::from(chunk));
        }
    }
}
