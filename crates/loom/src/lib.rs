//! The log's own source files, and the consensus log's, compiled against loom's atomics in place of the standard ones.
//!
//! The files are included by path, so that what is checked is what is shipped. Their only window to
//! the atomics is `crate::sync`, which here is loom's.
#![allow(dead_code, missing_docs, unreachable_pub)]

/// What `crate::sync` is in the log, from loom.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use loom::sync::{Condvar, Mutex};
}

#[path = "../../consensus/src/open_pages.rs"]
mod open_pages;
#[path = "../../log/src/progress.rs"]
mod progress;
#[path = "../../log/src/published.rs"]
mod published;
#[path = "../../consensus/src/region.rs"]
mod region;

#[cfg(test)]
mod filling;
#[cfg(test)]
mod listing;
#[cfg(test)]
mod publishing;
#[cfg(test)]
mod room;
