//! Work in the background in short bursts, with pauses that leave the processors to callers.

use std::time::{Duration, Instant};

use crate::state::inner::Inner;

/// The time of a burst: what a caller waits if it needs the processor meanwhile.
const BURST: Duration = Duration::from_micros(500);

/// Work on a store that pauses, or does not.
#[derive(Debug)]
pub(crate) struct Bursts<'a> {
    inner: &'a Inner,
    /// When the burst began; `None` if the work does not pause.
    began: Option<Instant>,
}

impl<'a> Bursts<'a> {
    pub(crate) fn new(inner: &'a Inner, pauses: bool) -> Self {
        Self { inner, began: pauses.then(Instant::now) }
    }

    /// Pauses as long as the burst took, at its end. Not if cleaning is behind, or the store is
    /// being closed. To be called often, without a lock.
    #[inline]
    pub(crate) fn pause(&mut self) {
        let Some(began) = self.began else { return };
        let took = began.elapsed();
        if took < BURST {
            return;
        }
        if !self.inner.is_behind() && self.inner.refuse_if_closing().is_ok() {
            std::thread::sleep(took.min(2 * BURST));
        }
        self.began = Some(Instant::now());
    }
}
