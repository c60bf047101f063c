//! The work that is requested of committer and maintenance, as flags that need no lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

#[derive(Debug, Default)]
pub(crate) struct PendingWork {
    /// Whether the log is in the engine's queue for a commit, and for maintenance.
    commit_queued: AtomicBool,
    maintenance_queued: AtomicBool,
    /// Whether the log moved to another segment since the last maintenance.
    rotation_pending: AtomicBool,
    /// As many callers are back as the commit delay waits for.
    delay_met: AtomicBool,
    /// The highest unit of which a ticket was dropped before it resolved.
    dropped_through: AtomicU64,
}

impl PendingWork {
    /// Marks the log as queued for a commit. Returns whether it was not.
    pub(crate) fn queue_commit(&self) -> bool {
        !self.commit_queued.swap(true, SeqCst)
    }

    pub(crate) fn begin_commit(&self) {
        self.commit_queued.store(false, SeqCst);
    }

    /// Marks the log as queued for maintenance. Returns whether it was not.
    pub(crate) fn queue_maintenance(&self) -> bool {
        !self.maintenance_queued.swap(true, SeqCst)
    }

    pub(crate) fn begin_maintenance(&self) {
        self.maintenance_queued.store(false, SeqCst);
    }

    pub(crate) fn is_maintenance_queued(&self) -> bool {
        self.maintenance_queued.load(SeqCst)
    }

    /// The next maintenance writes footers and applies the retention.
    pub(crate) fn request_rotation(&self) {
        self.rotation_pending.store(true, SeqCst);
    }

    pub(crate) fn is_rotation_pending(&self) -> bool {
        self.rotation_pending.load(SeqCst)
    }

    /// Returns whether that is requested, which it is not any more then.
    pub(crate) fn take_rotation(&self) -> bool {
        self.rotation_pending.swap(false, SeqCst)
    }

    pub(crate) fn begin_delay(&self) {
        self.delay_met.store(false, SeqCst);
    }

    pub(crate) fn end_delay(&self) {
        self.delay_met.store(true, SeqCst);
    }

    pub(crate) fn is_delay_met(&self) -> bool {
        self.delay_met.load(SeqCst)
    }

    /// Whether a ticket of this unit, or of a later one, was dropped before it resolved.
    pub(crate) fn is_dropped(&self, unit: u64) -> bool {
        self.dropped_through.load(Relaxed) >= unit
    }

    pub(crate) fn drop_ticket(&self, unit: u64) {
        self.dropped_through.fetch_max(unit, Relaxed);
    }
}
