//! The decoder of a consensus log's records over any bytes.
//!
//! ```text
//! cargo +nightly fuzz run record
//! ```
#![no_main]

use esker_consensus::fuzzing::decode_record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    decode_record(bytes);
});
