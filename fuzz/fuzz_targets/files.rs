//! The decoders of the small files over any bytes: sealed files, the manifest, the watermark page.
//!
//! ```text
//! cargo +nightly fuzz run files
//! ```
#![no_main]

use esker_log::fuzzing::decode_file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    decode_file(bytes);
});
