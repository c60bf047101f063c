//! Minimal replacements of what the included sources use.
#![allow(unsafe_code)]

use std::ops::Range;

use loom::cell::UnsafeCell;

/// A non-atomic number: a reader must be ordered after its write.
#[derive(Debug)]
pub(crate) struct Plain(UnsafeCell<u64>);

// SAFETY: written before it is shared, and only read afterwards. loom checks this.
unsafe impl Sync for Plain {}
// SAFETY: as above.
unsafe impl Send for Plain {}

impl Plain {
    pub(crate) fn new(number: u64) -> Self {
        let plain = Self(UnsafeCell::new(0));
        // SAFETY: the value is not shared yet.
        plain.0.with_mut(|cell| unsafe { *cell = number });
        plain
    }

    pub(crate) fn get(&self) -> u64 {
        // SAFETY: there are no more writers.
        self.0.with(|cell| unsafe { *cell })
    }
}

/// Bytes that are zero at first. [`Accesses`] has one cell for each.
pub(crate) struct Memory(Box<[std::cell::UnsafeCell<u8>]>);

// SAFETY: every access is registered with `Accesses` before.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn zeroed(len: usize) -> Self {
        Self((0..len).map(|_| std::cell::UnsafeCell::new(0)).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        std::cell::UnsafeCell::raw_get(self.0.as_ptr())
    }
}

pub(crate) fn prefetch<T>(_address: *const T) {}

/// One cell for each byte of some memory: loom reports two accesses at the same time, one of which
/// writes.
pub(crate) struct Accesses(Vec<UnsafeCell<()>>);

// SAFETY: the cells hold nothing. loom checks the accesses.
unsafe impl Sync for Accesses {}

impl Accesses {
    pub(crate) fn new(len: usize) -> Self {
        Self((0..len).map(|_| UnsafeCell::new(())).collect())
    }

    pub(crate) fn write(&self, range: Range<usize>) {
        self.0[range].iter().for_each(|cell| cell.with_mut(|_| ()));
    }

    pub(crate) fn read(&self, range: Range<usize>) {
        self.0[range].iter().for_each(|cell| cell.with(|_| ()));
    }
}

pub(crate) mod record {
    #[derive(Debug)]
    pub(crate) struct PageAt {
        pub(crate) number: u64,
        pub(crate) seq: u64,
        pub(crate) open: bool,
        pub(crate) committed: u64,
    }
}

pub(crate) mod slot {
    pub(crate) const SLOTS_PER_PAGE: usize = 1;

    pub(crate) fn page_of(slot: u64) -> u64 {
        slot
    }
}

pub(crate) mod page {
    use super::Plain;
    use crate::open_pages::OpenCount;

    #[derive(Debug)]
    pub(crate) struct Page {
        pub(crate) number: u64,
        pub(crate) open: OpenCount,
        pub(crate) filled: Plain,
    }

    impl Page {
        pub(crate) fn new(number: u64) -> Self {
            Self { number, open: OpenCount::default(), filled: Plain::new(number + 100) }
        }
    }
}

pub(crate) mod wake {
    pub(crate) fn wake(waker: std::task::Waker) {
        waker.wake();
    }
}
