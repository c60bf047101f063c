//! Source files of the log and its components, compiled against loom's atomics instead of the
//! standard ones.
//!
//! The files are included by path, so the checked code is the shipped code. They access atomics
//! only through `crate::sync`, which here is loom's.
#![allow(dead_code, missing_docs, unreachable_pub)]

/// Replaces the `crate::sync` module of the included sources.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
    pub(crate) use loom::sync::{Arc, MutexGuard as FairMutexGuard};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

    pub(crate) use crate::epochs::{Guard, pin};
    pub(crate) use crate::stubs::wake::wake;
    pub(crate) use crate::stubs::{Accesses, prefetch};

    /// loom does not model fairness.
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

/// The module paths under which the sources find their dependencies.
mod runtime {
    pub(crate) use crate::sync;
}
mod base {
    pub(crate) use crate::stubs::wake;
    pub(crate) use crate::{ballot, slot, sync};
}
mod memory {
    pub(crate) use crate::cell;
    pub(crate) use crate::stubs::Memory;
}
mod index {
    pub(crate) use crate::{open_pages, page};
}

/// Minimal replacements of the other dependencies of the consensus log's sources.
mod stubs;
pub(crate) use stubs::{page, record, slot};

#[path = "../../consensus/src/base/ballot.rs"]
mod ballot;
#[path = "../../consensus/src/memory/cell.rs"]
mod cell;
#[path = "../../kv/src/cache/chunk.rs"]
mod chunk;
#[path = "../../consensus/src/index/dirty.rs"]
mod dirty;
mod epochs;
#[path = "../../log/src/staging/fill_tracker.rs"]
mod fill_tracker;
#[path = "../../consensus/src/index/open_pages.rs"]
mod open_pages;
#[path = "../../consensus/src/index/page_table.rs"]
mod page_table;
#[path = "../../kv/src/state/request.rs"]
mod request;
#[path = "../../consensus/src/index/slot_locks.rs"]
mod slot_locks;
#[path = "../../kv/src/state/throttle.rs"]
mod throttle;
#[path = "../../consensus/src/memory/value_budget.rs"]
mod value_budget;
#[path = "../../log/src/staging/watermark.rs"]
mod watermark;

#[cfg(test)]
mod background_requests;
#[cfg(test)]
mod budget_waits;
#[cfg(test)]
mod cell_reads;
#[cfg(test)]
mod checkpoint_copy;
#[cfg(test)]
mod chunk_filling;
#[cfg(test)]
mod open_page_list;
#[cfg(test)]
mod page_lookup;
#[cfg(test)]
mod promise_order;
#[cfg(test)]
mod span_filling;
#[cfg(test)]
mod throttled_writers;
#[cfg(test)]
mod watermark_publication;
