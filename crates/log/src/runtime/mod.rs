//! The runtime of the other modules: threads, wait queues, counters and histograms.
//!
//! `engine` owns the threads and knows a log only as [`CommitWork`](engine::CommitWork) and
//! [`ReadWork`](engine::ReadWork); it has a `clock`. `waiters` has the wait queues for durability,
//! staging space and new records. `parked_thread` has the waker of a thread that waits, and
//! `deferred_wakes` wakes. `affinity` pins threads. `backoff` waits for another thread for a
//! moment. `detached` runs a call that blocks on a thread of its own, for a task. `sync` is the one
//! module that loom replaces.

pub(crate) mod affinity;
pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod deferred_wakes;
pub(crate) mod detached;
pub(crate) mod engine;
pub(crate) mod histogram;
pub(crate) mod parked_thread;
pub(crate) mod prefetch;
pub(crate) mod sync;
pub(crate) mod waiters;
