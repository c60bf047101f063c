//! Work in the background in short bursts, with pauses that leave the processors to callers.

use std::time::{Duration, Instant};

use crate::base::store_error::StoreError;
use crate::state::store_writer::StoreWriter;
use crate::state::throttle::BLOCKING_WAIT_MAX;

/// The time of a burst: the wait of a caller that needs the processor meanwhile.
const BURST_TIME: Duration = Duration::from_micros(500);

/// The bursts of some work on a store, which pauses between them, or does not.
#[derive(Debug)]
pub(crate) struct Bursts<'a> {
    writer: &'a StoreWriter,
    /// The beginning of the burst; `None` if the work does not pause.
    began: Option<Instant>,
    /// The last time that writers which wait for cleaning were let continue.
    opened: Instant,
}

impl<'a> Bursts<'a> {
    pub(crate) fn new(writer: &'a StoreWriter, pauses: bool) -> Self {
        let now = Instant::now();
        Self { writer, began: pauses.then_some(now), opened: now }
    }

    /// Pauses as long as the burst took, at its end; not while cleaning is behind. Writers that
    /// wait for cleaning continue after [`BLOCKING_WAIT_MAX`]: a future has no clock, and the work
    /// may take seconds. To be called often, without a lock.
    ///
    /// # Errors
    /// [`StoreError::Closed`] when the store is being closed: the caller of `close` waits.
    #[inline]
    pub(crate) fn pause(&mut self) -> Result<(), StoreError> {
        let Some(began) = self.began else { return Ok(()) };
        let took = began.elapsed();
        if took < BURST_TIME {
            return Ok(());
        }
        self.writer.state().refuse_if_closing()?;
        if self.opened.elapsed() >= BLOCKING_WAIT_MAX {
            self.writer.cleaning().throttle().open();
            self.opened = Instant::now();
        }
        if !self.writer.is_behind() {
            std::thread::sleep(took.min(2 * BURST_TIME));
        }
        self.began = Some(Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCKING_WAIT_MAX, BURST_TIME, Bursts};
    use crate::{Store, StoreError};

    /// Bug: a future that waited for cleaning waited until a checkpoint of the whole index was
    /// written.
    #[test]
    fn work_that_takes_long_lets_writers_continue() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store")).unwrap();
        let keys = store.keyspace();
        let throttle = keys.writer.cleaning().throttle();
        let mut bursts = Bursts::new(&keys.writer, true);
        for step in 1..3 {
            throttle.consider(step << 30, || true, || true);
            assert!(throttle.is_closed());
            std::thread::sleep(BLOCKING_WAIT_MAX);
            bursts.pause().unwrap();
            assert!(!throttle.is_closed());
        }
        store.close().unwrap();
    }

    #[test]
    fn closing_ends_work_that_pauses() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store")).unwrap();
        let keys = store.keyspace();
        let writer = &*keys.writer;
        let (mut paused, mut whole) = (Bursts::new(writer, true), Bursts::new(writer, false));
        std::thread::sleep(BURST_TIME);
        assert!(paused.pause().is_ok());
        writer.state().close();
        std::thread::sleep(BURST_TIME);
        assert!(matches!(paused.pause(), Err(StoreError::Closed)));
        assert!(whole.pause().is_ok());
    }
}
