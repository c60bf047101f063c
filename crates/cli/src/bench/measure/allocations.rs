//! Counting heap allocations and their bytes, so that "no allocation per append" and "an idle
//! reader costs bytes" can be seen and not only claimed.
//!
//! Each counter is one relaxed addition an allocation; what is measured allocates next to nothing,
//! so that it costs next to nothing.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);
static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counted.
pub struct CountingAllocator;

// SAFETY: every call goes to the system's allocator as it came, and so does its answer; the
// counters are no part of either.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the promises of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        took(size);
        gave_back(layout.size());
        // SAFETY: the caller keeps the promises of `realloc`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        gave_back(layout.size());
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

fn took(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Relaxed);
    TAKEN.fetch_add(bytes as u64, Relaxed);
}

fn gave_back(bytes: usize) {
    GIVEN_BACK.fetch_add(bytes as u64, Relaxed);
}

/// Bytes on the heap now.
pub fn live_bytes() -> u64 {
    // In this order nothing is given back that was not taken.
    let given_back = GIVEN_BACK.load(Relaxed);
    TAKEN.load(Relaxed).saturating_sub(given_back)
}

/// Allocations of this process so far, those that grow a block included.
pub fn count() -> u64 {
    ALLOCATIONS.load(Relaxed)
}
