//! A dirty flag: whether a page changed since a checkpoint copied it.
//!
//! An operation that changes a slot holds its lock, stores the word, and then calls [`Dirty::set`].
//! A checkpoint calls [`Dirty::take`], acquires and releases every lock, and then copies the words.
//! A change before that pass is in the copy. A change after the pass happens after `take`, so `set`
//! finds the flag cleared (or set by another change since), and it stays set for the next
//! checkpoint. The pass guarantees this, not the flag's ordering: `set` reads it relaxed.

use crate::base::sync::{AtomicBool, Ordering};

#[derive(Debug)]
pub(crate) struct Dirty(AtomicBool);

impl Dirty {
    pub(crate) fn new(dirty: bool) -> Self {
        Self(AtomicBool::new(dirty))
    }

    /// Sets the flag after a slot changed. The caller holds the slot's lock.
    #[inline]
    pub(crate) fn set(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Release);
        }
    }

    /// Whether the flag is set.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Clears the flag. Returns whether it was set.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}
