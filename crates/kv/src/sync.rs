//! The primitives that the model checker replaces: see `crates/loom`.

use std::ops::Range;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};

pub(crate) use esker_log::component::wake;
pub(crate) use esker_log::prefetch;

/// The accesses to memory that no lock guards. The model checker finds two at the same time; here
/// it does nothing.
#[derive(Debug)]
pub(crate) struct Accesses;

impl Accesses {
    pub(crate) fn new(_len: usize) -> Self {
        Self
    }

    #[inline]
    pub(crate) fn write(&self, _range: Range<usize>) {}

    #[inline]
    pub(crate) fn read(&self, _range: Range<usize>) {}
}
