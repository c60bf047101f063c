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

/// Where the log's sources look for it.
mod runtime {
    pub(crate) use crate::sync;
}

/// What the consensus log's sources need besides, as small as they allow.
mod stand_ins;
pub(crate) use stand_ins::{held, page, record, stock};

#[path = "../../consensus/src/ballot.rs"]
mod ballot;
#[path = "../../consensus/src/cell.rs"]
mod cell;
#[path = "../../consensus/src/dirty.rs"]
mod dirty;
mod epochs;
#[path = "../../consensus/src/gate.rs"]
mod gate;
#[path = "../../consensus/src/index.rs"]
mod index;
#[path = "../../consensus/src/open_pages.rs"]
mod open_pages;
#[path = "../../log/src/staging/fill_tracker.rs"]
mod progress;
#[path = "../../log/src/staging/watermark.rs"]
mod published;
#[path = "../../consensus/src/region.rs"]
mod region;

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
