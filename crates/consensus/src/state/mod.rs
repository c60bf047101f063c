//! An open consensus log: the state that all operations share, and what counts as committed.

pub(crate) mod background;
pub(crate) mod commit_tracker;
pub(crate) mod count_durable;
pub(crate) mod inner;
pub(crate) mod reclaiming;
pub(crate) mod waiting;
