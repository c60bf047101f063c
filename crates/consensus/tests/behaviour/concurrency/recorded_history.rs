//! Threads on one log, recorded as a history of calls and returns, and checked afterwards.
//!
//! Guards against what a program of single steps cannot show: a promise's answer that loses slots
//! while `truncate_before` or `install` runs beside it, an accept below a promise that raced it, an
//! iteration that passes over slots that are moved under it, and acknowledgements that a power cut
//! in the middle of all that takes back.
//!
//! `ESKER_SOAK=n` runs n seeds of longer lives.
#![allow(clippy::panic, clippy::print_stdout)]

use crate::concurrency::history;

#[test]
fn threads_see_whole_answers_and_crashes_lose_nothing_acknowledged() {
    let soak = std::env::var("ESKER_SOAK").ok().and_then(|text| text.parse().ok());
    let (seeds, steps) = soak.map_or((48u64, 40), |seeds| (seeds, 90));
    let first = std::env::var("ESKER_FIRST_SEED").ok().and_then(|text| text.parse().ok());
    let first = first.unwrap_or(0);
    let mut seen = history::Counts::default();
    for seed in first..first + seeds {
        match history::run(seed, steps) {
            Ok(counts) => seen.add(&counts),
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
    println!("{seeds} seeds: {seen:?}");
    // A history that never meets what it is made for checks nothing.
    assert!(seen.whole > 0 && seen.refused > 0 && seen.crashes > 0, "{seen:?}");
}
