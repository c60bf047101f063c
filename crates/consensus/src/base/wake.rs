//! Waking tasks.

/// Wakes a task; under a slot lock, after its release.
pub(crate) use esker_log::component::wake;
