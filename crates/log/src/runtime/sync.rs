//! The atomics of the hand-written concurrent structures, in one place so that the model checker
//! (loom) can replace them.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
