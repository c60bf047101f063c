//! The decoder of a store's records over any bytes.
//!
//! ```text
//! cargo +nightly fuzz run kv_record
//! ```
#![no_main]

use esker_kv::fuzzing::decode_record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    decode_record(bytes);
});
