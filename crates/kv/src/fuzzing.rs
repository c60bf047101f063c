//! Entry points for the fuzz targets: the decoders of records and checkpoints, over any bytes.

use crate::durability::checkpoint;
use crate::record::Record;

/// Decodes a record, and encodes it again. Returns whether the bytes are a record. Must return for
/// any input, and a record must be encoded in one way only.
pub fn decode_record(bytes: &[u8]) -> bool {
    let Ok(record) = Record::decode(bytes) else { return false };
    let mut again = Vec::with_capacity(bytes.len());
    record.encode(&mut again);
    assert!(again == bytes, "a record has two encodings");
    true
}

/// Builds an index of the bytes: the note of a checkpoint, and the content of a chunk. Returns the
/// number of its keys, if the bytes are valid. Must return for any input. Every key that is
/// accepted is in the index once, and in its order.
pub fn decode_checkpoint(bytes: &[u8]) -> Option<u64> {
    checkpoint::decode_any(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bug: the index has a bit less for it than a checkpoint, and took another number.
    #[test]
    fn a_number_that_an_entry_cannot_have_is_refused() {
        for (seq, is_valid) in [(0, false), (1, true), (u64::MAX >> 1, true), (1 << 63, false)] {
            let mut bytes = [3, u64::MAX, 5, 7].map(u64::to_le_bytes).concat();
            bytes.extend([2u32, 1, 1].map(u32::to_le_bytes).concat()); // keyspaces, one section
            bytes.extend([0, seq, 77].map(u64::to_le_bytes).concat());
            bytes.extend([5u32, 1].map(u32::to_le_bytes).concat());
            bytes.push(b'k');
            assert_eq!(decode_checkpoint(&bytes).is_some(), is_valid, "{seq}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(
            kind in prop_oneof![Just(1u8), Just(2), Just(3), Just(4), Just(129), any::<u8>()],
            key_len in prop_oneof![0u32..20, any::<u32>()],
            rest in prop::collection::vec(any::<u8>(), 0..40),
            cut in 0usize..50,
        ) {
            let mut bytes = (u32::from(kind) | key_len << 8).to_le_bytes().to_vec();
            bytes.extend(rest);
            bytes.truncate(cut);
            decode_record(&bytes);
        }

        #[test]
        fn any_sections_are_an_index_or_refused(
            last in prop_oneof![Just(9u64), any::<u64>()],
            sections in prop::collection::vec((
                0u32..3,
                prop_oneof![4 => Just(None), 1 => any::<u32>().prop_map(Some)],
                0u64..4,
                prop::collection::vec((
                    prop_oneof![8 => 0u64..10, 1 => any::<u64>()],
                    prop_oneof![8 => 0u32..10, 1 => any::<u32>()],
                    prop_oneof![8 => Just(None), 1 => any::<u32>().prop_map(Some)],
                    prop::collection::vec(0u8..4, 0..3),
                ), 0..5),
            ), 0..4),
            cut in prop_oneof![Just(usize::MAX), 0usize..200],
        ) {
            let mut bytes = [3, last, 5, 7].map(u64::to_le_bytes).concat();
            bytes.extend(2u32.to_le_bytes());
            let mut keys = 0;
            for (keyspace, count, place, entries) in sections {
                bytes.extend(keyspace.to_le_bytes());
                bytes.extend(count.unwrap_or(entries.len() as u32).to_le_bytes());
                bytes.extend(place.to_le_bytes());
                keys += entries.len() as u64;
                for (seq, value_len, key_len, key) in entries {
                    bytes.extend(seq.to_le_bytes());
                    bytes.extend(77u64.to_le_bytes());
                    bytes.extend(value_len.to_le_bytes());
                    bytes.extend(key_len.unwrap_or(key.len() as u32).to_le_bytes());
                    bytes.extend(key);
                }
            }
            bytes.truncate(cut);
            if let Some(found) = decode_checkpoint(&bytes) {
                prop_assert!(found <= keys);
            }
        }
    }
}
