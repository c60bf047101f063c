//! The atomics and locks of the concurrent structures, in one place so that the model checker can
//! replace them.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Epochs: what is removed from a cell is freed when every guard held at that time is dropped.
pub(crate) use crossbeam_epoch::{Guard, pin};

/// A lock that is fair: a waiting thread gets it eventually, however often others take it.
pub(crate) use parking_lot::{Mutex as FairMutex, MutexGuard as FairMutexGuard};
