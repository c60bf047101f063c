//! Iterating lends what it finds: in memory nothing is allocated for an entry, and from the log
//! less than two allocations are.
#![allow(clippy::unwrap_used)]

#[path = "kit/fixture.rs"]
mod fixture;

use std::ops::ControlFlow;

use esker_consensus::{IterateOptions, Slot};
use esker_testkit::CountingAllocator;
use fixture::{LOW, MODES, Setting, log};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const ENTRIES: u64 = 2000;

/// Allocations of an iteration over everything.
fn of_iterating(s: &Setting) -> u64 {
    let mut seen = 0;
    let visit = |entry: &esker_consensus::Entry<'_>| {
        seen += u64::from(entry.value().len() == 100);
        ControlFlow::Continue(())
    };
    let allocations = ALLOCATOR.of_this_thread(|| {
        s.log.iterate(Slot(0).., IterateOptions::default(), visit).unwrap();
    });
    assert_eq!(seen, ENTRIES);
    allocations
}

#[test]
fn iteration_allocates_nothing_in_memory_and_little_from_the_log() {
    for mode in MODES {
        let s = log(mode);
        let values = vec![[7; 100]; ENTRIES as usize];
        let pairs: Vec<_> = (0..).map(Slot).zip(values.iter().map(|value| &value[..])).collect();
        s.log.accept_batch(LOW, &pairs).unwrap().blocking_wait().unwrap();
        s.log.commit_through(Slot(ENTRIES - 1)).unwrap().blocking_wait().unwrap();
        of_iterating(&s);
        let in_memory = of_iterating(&s);
        assert!(in_memory < ENTRIES / 20, "{in_memory}");
        let s = s.reopen(mode);
        let from_the_log = of_iterating(&s);
        assert!(from_the_log < 2 * ENTRIES, "{from_the_log}");
    }
}
