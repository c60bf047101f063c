//! Whole directories of a log, corrupted in one to three places: bits, sectors and blocks changed,
//! doubled and exchanged; files cut, extended, deleted, renamed, exchanged, replaced by what they
//! were before or by those of another log; unknown files added; segments that hold other segments,
//! in place of their own content or after it, before ones that are missing.
//!
//! The rule: never a wrong record, never silence, never a panic, never a hang. A log that `verify`
//! calls sound opens and is read whole; opening for writing refuses or reports any other. A log
//! that was repaired is sound. What the repair reports as lost is what is missing of the original,
//! and nothing that is there. Everything else can be read, and the log continues.
//!
//! The history of the test decides, and shares no decoder with the engine. It knows which records
//! were acknowledged, with which bytes, by which step, what was durably trimmed, and which blocks
//! each step wrote. From these follows what cannot be decided, which is the bound of
//! `docs/src/guarantees.md`: a durable record may be missing silently only where every trace of a
//! later durable lower bound is corrupted, too. Such a trace is a commit unit of a later step, the
//! watermark page as that step or a later one left it, or the manifest of a later opening or clean
//! close.
//!
//! Guards: a hole that passes for a torn tail though something says that more was durable; oldest
//! segments that vanish in `repair` without a gap; truncated or dead records that come back; valid
//! units thrown away with their neighbours; a log that does not continue after its repair.
//!
//! `cargo xtask soak` runs many more cases; `ESKER_SEED` chooses the first.
#![allow(clippy::panic, clippy::print_stdout)]

mod fuzz_kit;

use esker_testkit::{Plans, run_new, run_past};
use fuzz_kit::LogComponent;

#[test]
fn corruption_is_reported_or_harmless_and_repair_keeps_the_rest() {
    if let Err(failure) = run_new(&LogComponent, "log", 960) {
        panic!("{failure}");
    }
}

/// Cases that failed once, with what was wrong.
#[test]
fn past_failures_do_not_return() {
    let cases = [
        (215, "an older clean end was no damage for `verify`"),
        (2256, "a segment whose records were all dropped was missed by an older manifest"),
        (3519, "what the first repair left was not examined again"),
        (3866, "an older manifest without a first segment: recovery dropped all but the newest"),
        (4814, "a segment of an earlier time was taken for the one before a lost header"),
        (5371, "another file had the name of a segment whose records were all dropped"),
        (7168, "the manifest was another log's, and so said the watermark page"),
        (10927, "with a rebuilt manifest the log began after the record of the watermark page"),
        (26894, "a log that ended below its trim point was sound for `verify`"),
        (34024, "no room was left for the records of a lost segment"),
        (36717, "with the manifest lost, the log became that of a stranger's segment"),
        (1_005_083, "a stranger's file took the room of the segment before a lost header"),
    ];
    if let Err(failure) = run_past(&LogComponent, "log", Plans::Any, &cases) {
        panic!("{failure}");
    }
}
