//! Which pages have uncommitted entries, so that a scan's cost follows those and not the log.
//!
//! A page counts its own entries without a lock. It enters the list with the first, under the lock,
//! and leaves it when a scan finds none. Whoever takes a page off the list first says so and then
//! looks at the count again; whoever enters counts first and then looks whether the page is listed. So
//! one of the two sees the other, and no page with an entry is ever off the list for good.

use std::collections::BTreeSet;

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering::SeqCst, fence};

/// A page's part.
#[derive(Debug)]
pub(crate) struct Count {
    entries: AtomicU64,
    listed: AtomicBool,
}

impl Default for Count {
    fn default() -> Self {
        Self { entries: AtomicU64::new(0), listed: AtomicBool::new(false) }
    }
}

impl Count {
    pub(crate) fn get(&self) -> u64 {
        self.entries.load(SeqCst)
    }

    /// An entry was committed or dropped.
    pub(crate) fn leave(&self) {
        self.entries.fetch_sub(1, SeqCst);
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
    pub(crate) fn enter(&self, number: u64, count: &Count) {
        count.entries.fetch_add(1, SeqCst);
        fence(SeqCst);
        if !count.listed.load(SeqCst) {
            self.set(|set| {
                set.insert(number);
                count.listed.store(true, SeqCst);
            });
        }
    }

    /// A scan found nothing in the page.
    pub(crate) fn found_empty(&self, number: u64, count: &Count) {
        self.set(|set| {
            count.listed.store(false, SeqCst);
            fence(SeqCst);
            if count.entries.load(SeqCst) == 0 {
                set.remove(&number);
            } else {
                // Another scan may have taken it off before.
                set.insert(number);
                count.listed.store(true, SeqCst);
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
