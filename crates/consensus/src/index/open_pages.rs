//! The pages that have uncommitted entries, so that a scan's cost depends on these and not on the
//! log.
//!
//! A page counts its own entries without a lock. The first entry puts the page on the list, under
//! the lock. A scan that finds no entry removes it. A bit of the count says whether the page is
//! listed. An operation that adds an entry learns from the same addition whether it must list the
//! page. A scan removes a page by a compare-and-exchange of "listed, and no entries". All changes
//! of one word have one order, so no page with an entry stays off the list, and no fence is needed.

use std::collections::BTreeSet;

use crate::base::sync::{AtomicU64, Mutex, Ordering::AcqRel, Ordering::Acquire};

/// The bit that says that the page is listed.
const LISTED_BIT: u64 = 1;
/// One entry in the count.
const ENTRY_UNIT: u64 = 2;

const _: () = assert!(ENTRY_UNIT == LISTED_BIT << 1);

/// The count of one page: twice its entries, plus the `LISTED_BIT` bit.
#[derive(Debug)]
pub(crate) struct OpenCount(AtomicU64);

impl Default for OpenCount {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl OpenCount {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Acquire) / ENTRY_UNIT
    }

    /// Removes an entry that was committed or dropped.
    #[inline]
    pub(crate) fn leave(&self) {
        let before = self.0.fetch_sub(ENTRY_UNIT, AcqRel);
        debug_assert!(before >= ENTRY_UNIT, "more entries left a page than entered it");
    }
}

/// The list of pages that may have uncommitted entries.
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

    /// Adds an entry that is about to be accepted in an empty slot.
    #[inline]
    pub(crate) fn enter(&self, number: u64, count: &OpenCount) {
        if count.0.fetch_add(ENTRY_UNIT, AcqRel) & LISTED_BIT == 0 {
            self.list_page(number, count);
        }
    }

    #[cold]
    fn list_page(&self, number: u64, count: &OpenCount) {
        self.set(|set| {
            set.insert(number);
            count.0.fetch_or(LISTED_BIT, AcqRel);
        });
    }

    /// Removes a page from the list after a scan found no entry in it.
    pub(crate) fn found_empty(&self, number: u64, count: &OpenCount) {
        self.set(|set| {
            // An operation that enters after this finds the bit cleared, and waits for the lock to
            // set it again.
            match count.0.compare_exchange(LISTED_BIT, 0, AcqRel, Acquire) {
                Ok(_) | Err(0) => {
                    set.remove(&number);
                }
                Err(_) => {}
            }
        });
    }

    /// Removes the pages below `number`, which were dropped.
    pub(crate) fn forget_below(&self, number: u64) {
        self.set(|set| *set = set.split_off(&number));
    }

    /// The listed pages, in order.
    pub(crate) fn list(&self) -> Vec<u64> {
        self.set(|set| set.iter().copied().collect())
    }
}
