//! The log's own source files, and the consensus log's, compiled against loom's atomics in place of the standard ones.
//!
//! The files are included by path, so that what is checked is what is shipped. Their only window to
//! the atomics is `crate::sync`, which here is loom's.
#![allow(dead_code, missing_docs, unreachable_pub)]

/// What `crate::sync` is in the log, from loom.
mod sync {
    pub(crate) use loom::sync::MutexGuard as FairMutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
    pub(crate) use loom::sync::{Condvar, Mutex};

    pub(crate) use crate::epochs::{Guard, pin};

    /// loom knows nothing of fairness.
    #[derive(Debug)]
    pub(crate) struct FairMutex<T>(Mutex<T>);

    impl<T> FairMutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> FairMutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}

/// Where the sources look for their parts.
mod runtime {
    pub(crate) use crate::sync;
}
mod base {
    pub(crate) use crate::{ballot, slot, sync};
}
mod memory {
    pub(crate) use crate::cell;
}
mod index {
    pub(crate) use crate::{open_pages, page};
}

/// What the consensus log's sources need besides, as small as they allow.
mod stand_ins;
pub(crate) use stand_ins::{page, record, slot};

#[path = "../../consensus/src/base/ballot.rs"]
mod ballot;
#[path = "../../consensus/src/memory/cell.rs"]
mod cell;
#[path = "../../consensus/src/index/dirty.rs"]
mod dirty;
mod epochs;
#[path = "../../log/src/staging/fill_tracker.rs"]
mod fill_tracker;
#[path = "../../consensus/src/index/open_pages.rs"]
mod open_pages;
#[path = "../../consensus/src/index/page_table.rs"]
mod page_table;
#[path = "../../consensus/src/index/slot_locks.rs"]
mod slot_locks;
#[path = "../../consensus/src/memory/value_budget.rs"]
mod value_budget;
#[path = "../../log/src/staging/watermark.rs"]
mod watermark;

#[cfg(test)]
mod copying;
#[cfg(test)]
mod deciding;
#[cfg(test)]
mod filling;
#[cfg(test)]
mod finding;
#[cfg(test)]
mod listing;
#[cfg(test)]
mod looking;
#[cfg(test)]
mod publishing;
#[cfg(test)]
mod room;
