//! The open snapshots: the points in time that may still be read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::base::operation_errors::ReadError;
use crate::base::store_error::StoreError;

/// The longest time between two calls of `pause` in [`Snapshots::await_newer`].
const AWAIT_STEP: Duration = Duration::from_millis(100);

/// The open snapshots of a store.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    open: Mutex<BTreeMap<(u64, u64), Arc<SnapshotPin>>>,
    /// Signalled when one is closed or expires.
    closed: Condvar,
    /// One above the lowest sequence number that an open snapshot reads; 0 when there is none.
    oldest: AtomicU64,
    next: AtomicU64,
}

/// The point in time of one snapshot.
#[derive(Debug)]
pub(crate) struct SnapshotPin {
    seq: u64,
    number: u64,
    taken: Instant,
    expired: AtomicBool,
}

impl SnapshotPin {
    /// The number of the last record that the snapshot sees.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Fails if the snapshot has expired. Checked after each read: only then was everything that
    /// it needed there.
    pub(crate) fn check(&self) -> Result<(), ReadError> {
        if self.expired.load(SeqCst) { Err(ReadError::SnapshotExpired) } else { Ok(()) }
    }
}

impl Snapshots {
    /// The lowest sequence number that an open snapshot reads; the largest number if none is open.
    #[inline]
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest.load(SeqCst).wrapping_sub(1)
    }

    /// Opens a snapshot at the number that `now` returns.
    ///
    /// While `now` runs, every version is kept. So a version that is replaced after `now` has
    /// chosen its number is kept for this snapshot, although its number is registered only then.
    pub(crate) fn open(&self, now: impl FnOnce() -> u64) -> Arc<SnapshotPin> {
        let mut open = self.open.lock();
        self.oldest.store(1, SeqCst);
        let seq = now();
        debug_assert!(seq < u64::MAX - 1, "the largest number means that no snapshot is open");
        let number = self.next.fetch_add(1, SeqCst);
        let taken = Instant::now();
        let pin = Arc::new(SnapshotPin { seq, number, taken, expired: AtomicBool::new(false) });
        let replaced = open.insert((seq, number), Arc::clone(&pin));
        debug_assert!(replaced.is_none(), "a snapshot has a number of its own");
        self.update(&open);
        pin
    }

    pub(crate) fn close(&self, pin: &SnapshotPin) {
        let mut open = self.open.lock();
        open.remove(&(pin.seq, pin.number));
        self.update(&open);
        self.closed.notify_all();
    }

    fn update(&self, open: &BTreeMap<(u64, u64), Arc<SnapshotPin>>) {
        let oldest = open.first_key_value().map_or(0, |((seq, _), _)| seq.saturating_add(1));
        self.oldest.store(oldest, SeqCst);
    }

    /// Expires the oldest snapshot. `false` if none is open.
    pub(crate) fn expire_oldest(&self) -> bool {
        let mut open = self.open.lock();
        let Some((_, pin)) = open.pop_first() else { return false };
        pin.expired.store(true, SeqCst);
        self.update(&open);
        self.closed.notify_all();
        true
    }

    /// Expires all snapshots. None is opened while `change` runs, which has to open and close none.
    pub(crate) fn expire_all(&self, change: impl FnOnce()) {
        let mut open = self.open.lock();
        while let Some((_, pin)) = open.pop_first() {
            pin.expired.store(true, SeqCst);
        }
        debug_assert!(open.is_empty(), "no snapshot is left");
        change();
        self.update(&open);
        self.closed.notify_all();
    }

    /// Waits until no snapshot below this number is open. One that is older than `timeout` expires.
    /// Calls `pause` between, without the lock. It may end the wait with an error.
    pub(crate) fn await_newer(
        &self,
        seq: u64,
        timeout: Duration,
        pause: impl Fn() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut open = self.open.lock();
        while let Some(((oldest, _), pin)) = open.first_key_value()
            && *oldest < seq
        {
            let left = timeout.saturating_sub(pin.taken.elapsed());
            if left.is_zero() {
                pin.expired.store(true, SeqCst);
                open.pop_first();
                self.update(&open);
                continue;
            }
            self.closed.wait_for(&mut open, left.min(AWAIT_STEP));
            // It wakes callers, whose code may close a snapshot.
            MutexGuard::unlocked(&mut open, &pause)?;
        }
        Ok(())
    }

    /// The number of open snapshots.
    pub(crate) fn len(&self) -> usize {
        self.open.lock().len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::mpsc::channel;

    use super::*;

    /// Cleaning wakes callers while it waits for a snapshot. One whose waker dropped the last
    /// snapshot, or opened one, waited for the lock that its thread held, for good.
    #[test]
    fn a_snapshot_may_be_opened_and_closed_while_cleaning_pauses() {
        let (done, awaited) = channel();
        std::thread::spawn(move || {
            let snapshots = Snapshots::default();
            let pin = snapshots.open(|| 5);
            let outcome = snapshots.await_newer(9, Duration::from_secs(3600), || {
                let newer = snapshots.open(|| 9);
                snapshots.close(&pin);
                snapshots.close(&newer);
                Ok(())
            });
            done.send(outcome.is_ok() && snapshots.len() == 0).unwrap();
        });
        assert!(awaited.recv_timeout(Duration::from_secs(60)).unwrap());
    }
}
