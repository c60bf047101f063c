//! The atomics and locks of the hand-made concurrent structures, in one place so that the model
//! checker can stand in for them.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
pub(crate) use std::sync::{Condvar, Mutex};

/// Epochs: what is taken out of a cell is given back when every guard of that time is gone.
pub(crate) use crossbeam_epoch::{Guard, pin};

/// A lock that whoever waits for it gets in the end, however often others take it.
pub(crate) use parking_lot::{Mutex as FairMutex, MutexGuard as FairMutexGuard};
