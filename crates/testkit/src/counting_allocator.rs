//! The system's allocator, with counts of allocations.
//!
//! A test binary declares it as its `#[global_allocator]`, and has the process to itself.
#![allow(unsafe_code)] // A global allocator is unsafe to implement; see the one SAFETY comment.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of allocations of all threads.
static ALL: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number of allocations of this thread.
    static MINE: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts allocations and reallocations.
#[derive(Debug)]
pub struct CountingAllocator;

impl CountingAllocator {
    /// Returns the number of allocations of all threads so far.
    pub fn of_all_threads(&self) -> u64 {
        ALL.load(Ordering::Relaxed)
    }

    /// Returns the number of allocations of this thread while it runs `run`.
    pub fn of_this_thread(&self, run: impl FnOnce()) -> u64 {
        let before = MINE.with(Cell::get);
        run();
        MINE.with(Cell::get) - before
    }
}

fn count() {
    ALL.fetch_add(1, Ordering::Relaxed);
    // A thread that is being torn down is not counted.
    let _ = MINE.try_with(|mine| mine.set(mine.get() + 1));
}

// SAFETY: every call is handed on as it came to the system's allocator, which keeps the contract;
// counting touches an atomic and a cell that needs no memory of its own.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
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
