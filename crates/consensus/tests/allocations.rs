//! Iterating lends what it finds: in memory nothing is allocated for an entry, and from the log
//! less than two allocations are.
#![allow(unsafe_code)] // A global allocator is unsafe to implement; see the one SAFETY comment.
#![allow(clippy::unwrap_used)]

#[path = "kit/fixture.rs"]
mod fixture;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;

use esker_consensus::Slot;
use fixture::{LOW, MODES, Setting, log};

/// The system's allocator, which counts for each thread.
struct Counting;

thread_local! {
    static MINE: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is being torn down is not counted.
    let _ = MINE.try_with(|mine| mine.set(mine.get() + 1));
}

// SAFETY: every call is handed on as it came to the system's allocator, which keeps the contract;
// counting touches a cell that needs no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.realloc(at, layout, size) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ENTRIES: u64 = 2000;

/// Allocations of an iteration over everything.
fn of_iterating(s: &Setting) -> u64 {
    let before = MINE.with(Cell::get);
    let mut seen = 0;
    let visit = |entry: &esker_consensus::Entry<'_>| {
        seen += u64::from(entry.value().len() == 100);
        ControlFlow::Continue(())
    };
    s.log.replay_from(Slot(0), visit).unwrap();
    let allocations = MINE.with(Cell::get) - before;
    assert_eq!(seen, ENTRIES);
    allocations
}

/// Requirements: FB-6.
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
