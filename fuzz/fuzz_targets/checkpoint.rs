//! The decoders of a checkpoint over any bytes: the log's header and chunks, and a store's note and
//! sections.
//!
//! ```text
//! cargo +nightly fuzz run checkpoint
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    esker_log::fuzzing::decode_checkpoint(bytes);
    esker_kv::fuzzing::decode_checkpoint(bytes);
});
