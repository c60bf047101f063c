//! A cell: a pointer that readers follow without a lock while it may change.
//!
//! A [`Cell`] points to a reference-counted value and owns one count. A reader loads the pointer
//! under an epoch guard. When a value is removed from a cell, its count is released only after
//! every guard held at that moment is dropped. So no reader ever sees freed or reused memory: not
//! when a value is replaced, nor when its page, its table or the whole log is dropped.
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
/// `into_raw` never returns null, and `from_raw` restores the value from that very pointer.
pub(crate) unsafe trait Counted: Clone + Send + Sync + 'static {
    fn into_raw(self) -> *mut ();
    /// # Safety
    /// The pointer came from `into_raw`, and its count was not released.
    unsafe fn from_raw(raw: *mut ()) -> Self;
    /// Releases the count once every guard that is held now is dropped. The pointer has left its
    /// cell. A small value may be released later, in a batch.
    fn retire(self, small: bool, guard: &Guard);
}

// SAFETY: `Arc` documents this for `into_raw` and `from_raw`.
unsafe impl<T: Send + Sync + 'static> Counted for Arc<T> {
    fn into_raw(self) -> *mut () {
        Arc::into_raw(self).cast_mut().cast()
    }

    unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: the caller upholds the contract of `Counted::from_raw`.
        unsafe { Arc::from_raw(raw.cast_const().cast()) }
    }

    fn retire(self, _small: bool, guard: &Guard) {
        guard.defer(move || drop(self));
    }
}

/// A cell for one counted pointer, or none.
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

/// A pointer that was loaded from a cell. It is valid while the guard is held, on any thread.
pub(crate) struct Borrowed<'g, P: Counted> {
    pointer: ManuallyDrop<P>,
    guard: PhantomData<&'g ()>,
}

impl<P: Counted> Borrowed<'_, P> {
    /// A counted pointer to the same value, independent of the guard.
    pub(crate) fn counted(&self) -> P {
        P::clone(&self.pointer)
    }
}

impl<P: Counted> Clone for Borrowed<'_, P> {
    fn clone(&self) -> Self {
        // SAFETY: a copy of the same borrowed pointer. Like the original, it never releases its
        // count and is valid as long as the guard.
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

    /// Loads the current value.
    #[inline]
    pub(crate) fn load<'g>(&self, _guard: &'g Guard) -> Option<Borrowed<'g, P>> {
        let raw = self.pointer.load(Acquire);
        if raw.is_null() {
            return None;
        }
        // SAFETY: it came from `into_raw`. The cell owned its count when the pointer was loaded,
        // and the count is released only after this guard is dropped. The borrowed pointer releases
        // none.
        let pointer = ManuallyDrop::new(unsafe { P::from_raw(raw) });
        Some(Borrowed { pointer, guard: PhantomData })
    }

    /// Replaces the value.
    pub(crate) fn swap(&self, value: Option<P>, guard: &Guard) {
        self.replace(value, false, guard);
    }

    /// Replaces the value. `small` says that the old value is known to be small.
    pub(crate) fn replace(&self, value: Option<P>, small: bool, guard: &Guard) {
        let raw = value.map_or(ptr::null_mut(), P::into_raw);
        retire::<P>(self.pointer.swap(raw, AcqRel), small, guard);
    }
}

impl<P: Counted> Drop for Cell<P> {
    fn drop(&mut self) {
        let raw = self.pointer.load(Acquire);
        if !raw.is_null() {
            // A reader may have loaded the pointer just before.
            retire::<P>(raw, false, &pin());
        }
    }
}

/// Releases a count once no reader uses the value.
fn retire<P: Counted>(raw: *mut (), small: bool, guard: &Guard) {
    if raw.is_null() {
        return;
    }
    // SAFETY: the pointer is in no cell any more, and its count was the cell's. Only this function
    // restores it, and passes it to `Counted::retire`, which keeps it until no reader uses it.
    unsafe { P::from_raw(raw) }.retire(small, guard);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn loaded_value_outlives_the_cell_under_its_guard() {
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
        // Guards of other tests delay this for as long as their threads do not run.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while Arc::strong_count(&value) >= 1000 {
            assert!(std::time::Instant::now() < deadline, "no count was given back in a minute");
            crossbeam_epoch::pin().flush();
            std::thread::yield_now();
        }
    }
}
