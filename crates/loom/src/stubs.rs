//! Minimal replacements of what the index and the cell use from the consensus log.
#![allow(unsafe_code)]

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
    pub(crate) const SLOTS: usize = 1;

    pub(crate) fn number_of(slot: u64) -> u64 {
        slot
    }
}

pub(crate) mod page {
    use super::Plain;
    use crate::open_pages::Count;

    #[derive(Debug)]
    pub(crate) struct Page {
        pub(crate) number: u64,
        pub(crate) open: Count,
        pub(crate) filled: Plain,
    }

    impl Page {
        pub(crate) fn new(number: u64) -> Self {
            Self { number, open: Count::default(), filled: Plain::new(number + 100) }
        }
    }
}
