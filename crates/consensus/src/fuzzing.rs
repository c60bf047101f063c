//! Entry point for the fuzz target: the decoder of records, over any bytes.

use crate::record::Record;

/// Decodes a record and goes through everything in it. Returns whether the bytes are a record. Must
/// return for any input.
pub fn decode_record(bytes: &[u8]) -> bool {
    match Record::decode(bytes) {
        Ok(Record::Commit { slots }) => slots.iter().count() <= bytes.len(),
        Ok(Record::Page { words, .. }) => words.iter().count() <= bytes.len(),
        Ok(Record::Root { pages, .. }) => pages.iter().count() <= bytes.len(),
        Ok(_) => true,
        Err(_) => false,
    }
}
