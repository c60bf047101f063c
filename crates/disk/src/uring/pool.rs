//! A pool of rings. Each ring serves one caller at a time; rings are created on demand. A child
//! that `fork` makes shares their memory with its parent, and its files use none of them.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::RINGS_MAX;
use super::faults::Faults;
use super::ring::Ring;
use crate::process;

#[derive(Debug)]
pub(super) struct Pool {
    idle: Mutex<Vec<Ring>>,
    /// Existing rings, idle or not.
    made: AtomicUsize,
    in_flight: usize,
    faults: Faults,
}

impl Pool {
    pub(super) fn new(in_flight: usize, faults: Faults) -> io::Result<Self> {
        process::register()?;
        let mut idle = Vec::with_capacity(RINGS_MAX);
        idle.push(Ring::new(in_flight)?.with(faults.clone()));
        Ok(Self { idle: Mutex::new(idle), made: AtomicUsize::new(1), in_flight, faults })
    }

    /// Lends a ring for one call; `None` when all are lent out and no other can be created.
    pub(super) fn with<T>(
        &self,
        call: impl FnOnce(&mut Ring) -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        let mut ring = self.take()?;
        let outcome = call(&mut ring);
        if ring.is_usable() {
            self.lock().push(ring);
        } else {
            self.made.fetch_sub(1, Ordering::Relaxed);
        }
        Some(outcome)
    }

    fn take(&self) -> Option<Ring> {
        if let Some(ring) = self.lock().pop() {
            return Some(ring);
        }
        if self.made.fetch_add(1, Ordering::Relaxed) < RINGS_MAX
            && let Ok(ring) = Ring::new(self.in_flight)
        {
            return Some(ring.with(self.faults.clone()));
        }
        self.made.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Ring>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
