//! Entry point for the fuzz target: the decoder of records, over any bytes.

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
    }
}
