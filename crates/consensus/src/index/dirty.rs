//! Whether a page changed since a checkpoint copied it.
//!
//! Who changes a slot holds its lock, stores the word, and then calls [`Dirty::set`]. A checkpoint calls
//! [`Dirty::take`], passes through every lock, and then copies the words. A change before that pass is in
//! the copy. A change after it happens after `take`, so `set` finds the flag cleared (or set by another
//! change since) and it stays set for the next checkpoint. The pass makes this true, and not the flag's
//! ordering: `set` reads it relaxed.

use crate::base::sync::{AtomicBool, Ordering};

#[derive(Debug)]
pub(crate) struct Dirty(AtomicBool);

impl Dirty {
    pub(crate) fn new(dirty: bool) -> Self {
        Self(AtomicBool::new(dirty))
    }

    /// A slot changed. The caller holds its lock.
    #[inline]
    pub(crate) fn set(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Release);
        }
    }

    /// Whether something changed.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether something changed; from here on nothing has.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}
