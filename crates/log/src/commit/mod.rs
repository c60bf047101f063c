//! Commits: make staged records durable.
//!
//! `core` is the pure state machine: it assigns places and decides what to write or sync next.
//! `driver` runs it on the thread of a waiting caller or of the engine. `commit_io` prepares the
//! writes in order and executes them. `callbacks` has what is called when a record is durable.
//! `commit_delay` decides whether a commit waits for more callers. `preallocation` gets file space
//! before records are placed in it, `requested_preallocation` does so for callers that must not
//! block, and `shared_reserve` lends the reserve to other logs.
//! `preallocator` and `maintenance` do the background work: prewritten blocks, footers, and
//! `retention`, which asks `ages` what is too old. `write_half` is the shared state, in groups:
//! `segment_set`, `log_space`, `pending_work`. `lock_order` has its locks, `committer` the state of
//! the next commit, `space_request` the wait for space. `terminal_state` fails the log.

pub(crate) mod ages;
pub(crate) mod callbacks;
pub(crate) mod commit_delay;
pub(crate) mod commit_io;
pub(crate) mod committer;
pub(crate) mod core;
pub(crate) mod driver;
pub(crate) mod lock_order;
pub(crate) mod log_space;
pub(crate) mod maintenance;
pub(crate) mod pending_work;
pub(crate) mod preallocation;
pub(crate) mod preallocator;
pub(crate) mod requested_preallocation;
pub(crate) mod retention;
pub(crate) mod segment_set;
pub(crate) mod shared_reserve;
pub(crate) mod space_request;
pub(crate) mod terminal_state;
pub(crate) mod write_half;
