//! Whole directories of a consensus log, corrupted in one to three places, as those of a log are.
//!
//! The rule: a log that opens for writing is what it was after some prefix of its history that
//! holds everything which was provably durable: promise, floor, frontier, and every slot with
//! ballot, value and state. A slot may say that its value cannot be read. Anything else refuses,
//! with a typed error. After `repair` the log opens; where something was quarantined it is
//! read-only, and what it still reports is true: values that were tried, and as committed nothing
//! but what was chosen.
//!
//! The history of the test decides, and shares no decoder with the engine. What was provably
//! durable is said by the traces of `esker_testkit::Traces`, and is the bound of
//! `docs/src/guarantees.md`.
//!
//! Guards: a lower promise, or an accept or commit that is forgotten, after corruption that nothing
//! reported; a value that is reported as chosen and was not; a checkpoint of another time, or of
//! another log, that is believed; a log that was repaired and promises again.
//!
//! `cargo xtask soak` runs many more cases; `ESKER_SEED` chooses the first.
#![allow(clippy::panic, clippy::print_stdout)]

mod fuzz_kit;

use esker_testkit::{Plans, run_new, run_past};
use fuzz_kit::ConsensusComponent;

#[test]
fn corruption_is_reported_or_harmless_and_repair_reports_what_it_forgets() {
    if let Err(failure) = run_new(&ConsensusComponent, "consensus", 720) {
        panic!("{failure}");
    }
}

/// Cases that failed once, with what was wrong.
#[test]
fn past_failures_do_not_return() {
    let cases = [
        (10_422, "app metadata of an older checkpoint named pages that were dropped"),
        (1_006_550, "with the manifest lost, the log became the other one that a segment names"),
    ];
    if let Err(failure) = run_past(&ConsensusComponent, "consensus", Plans::Any, &cases) {
        panic!("{failure}");
    }
}
