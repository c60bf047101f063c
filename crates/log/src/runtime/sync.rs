//! The atomics and cells of the hand-made concurrent structures, in one place so that the model
//! checker can stand in for them.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
