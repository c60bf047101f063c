//! Every decoder over any bytes: segment header, commit units, records, gaps and footer.
//!
//! ```text
//! cargo install cargo-fuzz
//! cargo +nightly fuzz run segment fuzz/corpus/segment crates/log/tests/golden/v1/clean
//! ```
//!
//! The golden logs serve as seeds: a mutation of a sound segment comes further than random bytes,
//! as every structure has a checksum. The same function runs as a property test on stable Rust:
//! `cargo test -p esker-log --test format decoder::`.
#![no_main]

use esker_log::fuzzing::decode_segment;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    decode_segment(bytes);
});
