//! A pointer that readers follow without a lock, and that may change under them.
//!
//! What a [`Cell`] points to is counted by reference, and the cell owns one count. A reader looks
//! under an epoch guard. Whoever takes a value out of a cell gives its count back only when every guard
//! that was held at that moment is gone, so that no reader ever sees memory that was given back or
//! used again: not when a value is replaced, nor when its page, its table or the whole log goes.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;

use crate::base::sync::{AtomicPtr, Guard, Ordering::AcqRel, Ordering::Acquire, pin};

/// A reference-counted pointer of one word.
///
/// # Safety
/// `from_raw` gives back the very pointer that went into `into_raw`, never null.
pub(crate) unsafe trait Counted: Clone + Send + Sync + 'static {
    fn into_raw(self) -> *mut ();
    /// # Safety
    /// The pointer came from `into_raw`, and its count was not given back.
    unsafe fn from_raw(raw: *mut ()) -> Self;
    /// Gives the count back once every guard that is held now is gone. It left its cell before. What
    /// is small may wait for others.
    fn retire(self, small: bool, guard: &Guard);
}

// SAFETY: `Arc` says so of its own pair.
unsafe impl<T: Send + Sync + 'static> Counted for Arc<T> {
    fn into_raw(self) -> *mut () {
        Arc::into_raw(self).cast_mut().cast()
    }

    unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Arc::from_raw(raw.cast_const().cast()) }
    }

    fn retire(self, _small: bool, guard: &Guard) {
        guard.defer(move || drop(self));
    }
}

/// A place for one counted pointer, or none.
#[derive(Debug)]
pub(crate) struct Cell<P: Counted> {
    pointer: AtomicPtr<()>,
    owns: PhantomData<P>,
}

impl<P: Counted> Default for Cell<P> {
    fn default() -> Self {
        Self { pointer: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }
}

/// A pointer that was seen in a cell. It is good as long as the guard is held, on whichever thread.
pub(crate) struct Borrowed<'g, P: Counted> {
    pointer: ManuallyDrop<P>,
    guard: PhantomData<&'g ()>,
}

impl<P: Counted> Borrowed<'_, P> {
    /// The same, for as long as wanted.
    pub(crate) fn counted(&self) -> P {
        P::clone(&self.pointer)
    }
}

impl<P: Counted> Clone for Borrowed<'_, P> {
    fn clone(&self) -> Self {
        // SAFETY: a copy of the same borrowed pointer, which like this one never gives its count back
        // and is good for as long.
        let pointer = unsafe { ptr::read(&raw const self.pointer) };
        Self { pointer, guard: PhantomData }
    }
}

impl<P: Counted> Deref for Borrowed<'_, P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.pointer
    }
}

impl<P: Counted> Cell<P> {
    pub(crate) fn new(value: P) -> Self {
        Self { pointer: AtomicPtr::new(value.into_raw()), owns: PhantomData }
    }

    /// What is there now.
    #[inline]
    pub(crate) fn load<'g>(&self, _guard: &'g Guard) -> Option<Borrowed<'g, P>> {
        let raw = self.pointer.load(Acquire);
        if raw.is_null() {
            return None;
        }
        // SAFETY: it came from `into_raw`. The cell's count was there when the pointer was loaded, and
        // is given back no sooner than this guard is dropped. The borrowed pointer gives back none.
        let pointer = ManuallyDrop::new(unsafe { P::from_raw(raw) });
        Some(Borrowed { pointer, guard: PhantomData })
    }

    /// Puts something else there.
    pub(crate) fn swap(&self, value: Option<P>, guard: &Guard) {
        self.replace(value, false, guard);
    }

    /// The same; what was there may be known to be small.
    pub(crate) fn replace(&self, value: Option<P>, small: bool, guard: &Guard) {
        let raw = value.map_or(ptr::null_mut(), P::into_raw);
        retire::<P>(self.pointer.swap(raw, AcqRel), small, guard);
    }
}

impl<P: Counted> Drop for Cell<P> {
    fn drop(&mut self) {
        let raw = self.pointer.load(Acquire);
        if !raw.is_null() {
            // A reader may have looked just before.
            retire::<P>(raw, false, &pin());
        }
    }
}

/// Gives a count back once nobody looks any more.
fn retire<P: Counted>(raw: *mut (), small: bool, guard: &Guard) {
    if raw.is_null() {
        return;
    }
    // SAFETY: the pointer is in no cell any more, and its count was the cell's; this is the only place
    // that takes it back, and it goes on to whom it is kept until nobody looks.
    unsafe { P::from_raw(raw) }.retire(small, guard);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_outlives_the_cell() {
        let first = Arc::new(7);
        let cell = Cell::new(Arc::clone(&first));
        let guard = crossbeam_epoch::pin();
        let seen = cell.load(&guard).unwrap();
        cell.swap(Some(Arc::new(8)), &guard);
        assert_eq!((**seen, **cell.load(&guard).unwrap()), (7, 8));
        let second = cell.load(&guard).unwrap();
        drop(cell);
        assert_eq!(**second, 8);
        assert_eq!(Arc::strong_count(&first), 2, "given back under a guard");
    }

    #[test]
    fn counts_are_given_back_in_the_end() {
        let value = Arc::new(1);
        for _ in 0..1000 {
            let cell = Cell::new(Arc::clone(&value));
            cell.swap(None, &crossbeam_epoch::pin());
        }
        for _ in 0..1000 {
            crossbeam_epoch::pin().flush();
        }
        // Other tests' guards may hold the last few back.
        assert!(Arc::strong_count(&value) < 1000);
    }
}
