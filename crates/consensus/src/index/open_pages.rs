//! Which pages have uncommitted entries, so that a scan's cost follows those and not the log.
//!
//! A page counts its own entries without a lock. It enters the list with the first, under the lock,
//! and leaves it when a scan finds none. Whether it is listed is a bit of the count itself: whoever
//! enters learns by the same addition whether the page has to be listed, and a page is taken off by an
//! exchange of "listed, and no entries". All changes of one word have one order, so that no page with
//! an entry is ever off the list for good, and nobody needs a fence.

use std::collections::BTreeSet;

use crate::base::sync::{AtomicU64, Mutex, Ordering::AcqRel, Ordering::Acquire};

/// The page is on the list.
const LISTED: u64 = 1;
const ENTRY: u64 = 2;

/// A page's part: twice its entries, and the bit.
#[derive(Debug)]
pub(crate) struct Count(AtomicU64);

impl Default for Count {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Count {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Acquire) / ENTRY
    }

    /// An entry was committed or dropped.
    #[inline]
    pub(crate) fn leave(&self) {
        self.0.fetch_sub(ENTRY, AcqRel);
    }
}

/// The pages that may have uncommitted entries.
#[derive(Debug)]
pub(crate) struct OpenPages(Mutex<BTreeSet<u64>>);

impl Default for OpenPages {
    fn default() -> Self {
        Self(Mutex::new(BTreeSet::new()))
    }
}

impl OpenPages {
    fn set<T>(&self, with: impl FnOnce(&mut BTreeSet<u64>) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// An entry is about to be accepted in a slot that had none.
    #[inline]
    pub(crate) fn enter(&self, number: u64, count: &Count) {
        if count.0.fetch_add(ENTRY, AcqRel) & LISTED == 0 {
            self.list_page(number, count);
        }
    }

    #[cold]
    fn list_page(&self, number: u64, count: &Count) {
        self.set(|set| {
            set.insert(number);
            count.0.fetch_or(LISTED, AcqRel);
        });
    }

    /// A scan found nothing in the page.
    pub(crate) fn found_empty(&self, number: u64, count: &Count) {
        self.set(|set| {
            // Whoever enters behind this finds the bit gone, and waits for the lock to set it again.
            match count.0.compare_exchange(LISTED, 0, AcqRel, Acquire) {
                Ok(_) | Err(0) => {
                    set.remove(&number);
                }
                Err(_) => {}
            }
        });
    }

    /// A page is gone.
    pub(crate) fn forget_below(&self, number: u64) {
        self.set(|set| *set = set.split_off(&number));
    }

    /// The pages, in order.
    pub(crate) fn list(&self) -> Vec<u64> {
        self.set(|set| set.iter().copied().collect())
    }
}
