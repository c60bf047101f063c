//! The health of a store: it is open, is being closed, or has failed.
//!
//! A broken invariant fails a store for good, because its index may be wrong: every later call
//! returns the invariant, and nothing is cleaned and no checkpoint is written. The records in the
//! log are not affected, and opening builds the index of them again.

use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

/// The bit of a store that is being closed.
const CLOSING_BIT: u8 = 1;
/// The bit of a store that has failed.
const FAILED_BIT: u8 = 2;

/// The state of a store that every call checks. By default, it is open.
#[derive(Debug, Default)]
pub(crate) struct Health {
    bits: AtomicU8,
    /// The first invariant that was broken.
    invariant: OnceLock<BrokenInvariant>,
    /// Whether [`Health::fail`] returns in debug builds as it does in others.
    #[cfg(test)]
    never_panics: std::sync::atomic::AtomicBool,
}

/// An invariant that does not hold, as the sentence that should be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrokenInvariant(pub(crate) &'static str);

/// The reason why a store refuses every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Closed,
    Failed(BrokenInvariant),
}

impl Health {
    /// Refuses a call on a store that is being closed or has failed.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match self.bits.load(SeqCst) {
            0 => Ok(()),
            bits => self.refuse(bits),
        }
    }

    #[cold]
    fn refuse(&self, bits: u8) -> Result<(), Refusal> {
        if bits & CLOSING_BIT != 0 {
            return Err(Refusal::Closed);
        }
        self.check_invariants().map_err(Refusal::Failed)
    }

    /// Refuses an answer of a store that has failed. A store that is being closed passes.
    #[inline]
    pub(crate) fn check_invariants(&self) -> Result<(), BrokenInvariant> {
        if self.bits.load(SeqCst) & FAILED_BIT == 0 {
            return Ok(());
        }
        // Set before the bit.
        self.invariant.get().map_or(Ok(()), |broken| Err(*broken))
    }

    /// Refuses every call from here on: the store is being closed.
    pub(crate) fn close(&self) {
        self.bits.fetch_or(CLOSING_BIT, SeqCst);
    }

    /// Fails the store if an invariant does not hold.
    #[inline]
    pub(crate) fn ensure(
        &self,
        holds: bool,
        invariant: &'static str,
    ) -> Result<(), BrokenInvariant> {
        if holds { Ok(()) } else { Err(self.fail(invariant)) }
    }

    /// Fails the store if an invariant does not hold, for a caller that continues with its work.
    #[inline]
    pub(crate) fn fail_unless(&self, holds: bool, invariant: &'static str) {
        if !holds {
            self.fail(invariant);
        }
    }

    /// Fails the store, because this does not hold. Panics in debug builds.
    #[cold]
    pub(crate) fn fail(&self, invariant: &'static str) -> BrokenInvariant {
        self.set_failed(invariant);
        #[cfg(test)]
        if self.never_panics.load(SeqCst) {
            return BrokenInvariant(invariant);
        }
        debug_assert!(false, "a store has failed, because this does not hold: {invariant}");
        BrokenInvariant(invariant)
    }

    /// Fails the store without a panic, for a thread whose panic was reported already.
    #[cold]
    pub(crate) fn set_failed(&self, invariant: &'static str) {
        let is_first = self.invariant.set(BrokenInvariant(invariant)).is_ok();
        self.bits.fetch_or(FAILED_BIT, SeqCst);
        if is_first {
            tracing::error!(invariant, "a store has failed, because this does not hold");
        }
    }

    /// Makes [`Health::fail`] return in debug builds, too.
    #[cfg(test)]
    pub(crate) fn never_panic(&self) {
        self.never_panics.store(true, SeqCst);
    }
}

/// Fails a store when the thread that has this panics.
#[derive(Debug)]
pub(crate) struct FailOnPanic {
    health: Arc<Health>,
    invariant: &'static str,
}

impl FailOnPanic {
    pub(crate) fn new(health: &Arc<Health>, invariant: &'static str) -> Self {
        Self { health: Arc::clone(health), invariant }
    }
}

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.health.set_failed(self.invariant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_broken_invariant_is_the_answer_to_every_call() {
        let health = Health::default();
        assert_eq!(health.check(), Ok(()));
        health.never_panic();
        assert_eq!(health.ensure(true, "zero"), Ok(()));
        assert_eq!(health.ensure(false, "one"), Err(BrokenInvariant("one")));
        assert_eq!(health.fail("two"), BrokenInvariant("two"));
        assert_eq!(health.check(), Err(Refusal::Failed(BrokenInvariant("one"))));
        assert_eq!(health.check_invariants(), Err(BrokenInvariant("one")));
        health.close();
        assert_eq!(health.check(), Err(Refusal::Closed));
    }

    #[test]
    fn a_store_that_is_being_closed_has_not_failed() {
        let health = Health::default();
        health.close();
        assert_eq!((health.check(), health.check_invariants()), (Err(Refusal::Closed), Ok(())));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "does not hold: one is two")]
    fn a_broken_invariant_panics_in_debug_builds() {
        let _ = Health::default().ensure(1 == 2, "one is two");
    }

    #[test]
    fn a_panic_of_a_thread_fails_its_store() {
        let health = Arc::new(Health::default());
        let fail_on_panic = FailOnPanic::new(&health, "no thread panics");
        drop(FailOnPanic::new(&health, "another one ends"));
        assert!(health.check_invariants().is_ok());
        let thread = std::thread::spawn(move || {
            let _fail_on_panic = fail_on_panic;
            panic!("as a bug would")
        });
        let panicked = thread.join();
        assert!(panicked.is_err() && health.check_invariants().is_err());
    }
}
