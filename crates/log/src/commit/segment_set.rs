//! The set of segments of an open log: which there are, and which the retention lets go.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use crate::base::options::Retention;
use crate::commit::ages::Ages;
use crate::runtime::engine::ReadWork;
use crate::store::segment_table::SegmentTable;
use crate::store::trim_point::TrimPoint;

pub(crate) struct SegmentSet {
    table: Arc<SegmentTable>,
    trim_point: Arc<TrimPoint>,
    /// Held while the set changes.
    segment_set_lock: Mutex<()>,
    retention: Mutex<Retention>,
    ages: Mutex<Ages>,
    /// How often segments were dropped and their space was freed.
    drops: AtomicU64,
    /// The readers to notify when segments are dropped.
    readers: Weak<dyn ReadWork>,
}

impl SegmentSet {
    pub(crate) fn new(
        table: Arc<SegmentTable>,
        trim_point: Arc<TrimPoint>,
        retention: Retention,
        readers: Weak<dyn ReadWork>,
    ) -> Self {
        Self {
            table,
            trim_point,
            segment_set_lock: Mutex::default(),
            retention: Mutex::new(retention),
            ages: Mutex::default(),
            drops: AtomicU64::new(0),
            readers,
        }
    }

    pub(crate) fn table(&self) -> &SegmentTable {
        &self.table
    }

    pub(crate) fn trim_point(&self) -> &TrimPoint {
        &self.trim_point
    }

    /// Takes the lock of the set, or waits for it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.segment_set_lock.lock()
    }

    /// Takes the lock of the set; `None` where another thread has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.segment_set_lock.try_lock()
    }

    pub(crate) fn retention(&self) -> Retention {
        *self.retention.lock()
    }

    pub(crate) fn set_retention(&self, retention: Retention) {
        *self.retention.lock() = retention;
    }

    pub(crate) fn lock_ages(&self) -> MutexGuard<'_, Ages> {
        self.ages.lock()
    }

    pub(crate) fn drops(&self) -> u64 {
        self.drops.load(SeqCst)
    }

    /// Counts a drop whose space was freed.
    pub(crate) fn count_drop(&self) {
        self.drops.fetch_add(1, SeqCst);
    }

    /// Notifies readers that segments below this number were dropped.
    pub(crate) fn notify_readers(&self, below: u64) {
        if let Some(readers) = self.readers.upgrade() {
            readers.dropped_below(below);
        }
    }
}
