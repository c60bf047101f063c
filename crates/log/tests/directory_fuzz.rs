//! Whole directories of a log, damaged in one to three places: bits, sectors and blocks changed,
//! doubled and exchanged; files cut, extended, deleted, renamed, exchanged, replaced by what they were
//! before or by those of another log; strangers added.
//!
//! The rule: never a wrong record, never silence, never a panic, never a hang. `verify` says what reading
//! says. Opening for writing refuses or reports. After `repair` everything else can be read, a second
//! `verify` finds nothing, and the log goes on.
//!
//! The history of the test decides, and shares no decoder with the engine. It knows which records were
//! acknowledged, with which bytes, by which step, what was durably trimmed, and which blocks each step
//! wrote. From these follows what cannot be decided, which is the bound of `docs/src/guarantees.md`: a
//! durable record may be missing in silence only where every trace of a later durable lower bound is
//! damaged, too. Such a trace is a commit unit of a later step, the watermark page as that step or a
//! later one left it, or the manifest of a later opening or clean close.
//!
//! Guards: a hole that passes for a torn tail though something says that more was durable; oldest
//! segments that vanish in `repair` without a gap; truncated or dead records that come back; sound units
//! thrown away with their neighbours; a log that does not go on after its repair.
//!
//! `cargo xtask soak` runs many more cases; `ESKER_SEED` chooses the first.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod fuzz_kit;

use esker_testkit::{Runs, run};
use fuzz_kit::LogComponent;

#[test]
fn damage_is_reported_or_harmless_and_repair_keeps_the_rest() {
    let runs = Runs::from_env("log", 480);
    match run(&LogComponent, &runs) {
        Ok(words) => {
            println!("{words:?}");
            // Otherwise nothing was tried.
            let many = runs.cases >= 480;
            assert!(!many || ["whole", "reported", "repaired"].iter().all(|w| words[w] > 10));
        }
        Err(failures) => panic!("{failures}"),
    }
}
