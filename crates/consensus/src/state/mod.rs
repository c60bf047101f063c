//! An open consensus log: the state that all operations share, by owner.
//!
//! `inner` composes the rest: `status` says whether the log accepts operations; `frontier` tracks
//! what is durably committed, in a `commit_tracker`, and `frontier_waiters` waits for it;
//! `newest_records` has the newest records; `checkpoint_schedule` and `reclaim_progress` are what
//! the jobs of `background` use; `lost_records` is for a repaired log. `count_durable` moves the
//! frontier. Operations hold `held_locks`.

pub(crate) mod background;
pub(crate) mod checkpoint_schedule;
pub(crate) mod commit_tracker;
pub(crate) mod count_durable;
pub(crate) mod frontier;
pub(crate) mod frontier_waiters;
pub(crate) mod held_locks;
pub(crate) mod inner;
pub(crate) mod lost_records;
pub(crate) mod newest_records;
pub(crate) mod reclaim_progress;
pub(crate) mod status;
