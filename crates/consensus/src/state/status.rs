//! Whether an open log accepts operations, and why not.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};

use crate::read_only::ReadOnlyReason;

/// The status of an open log. Each change but the end of a copy is final.
#[derive(Debug)]
pub(crate) struct LogStatus {
    /// Why it accepts no operation; `None` for an ordinary log.
    read_only: Option<ReadOnlyReason>,
    closed: AtomicBool,
    /// The underlying log failed, or an invariant is broken: the terminal state.
    failed: AtomicBool,
    /// The first invariant that was found broken.
    broken_invariant: OnceLock<&'static str>,
}

impl LogStatus {
    pub(crate) fn new(read_only: Option<ReadOnlyReason>) -> Self {
        let (closed, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { read_only, closed, failed, broken_invariant: OnceLock::new() }
    }

    pub(crate) fn read_only(&self) -> Option<ReadOnlyReason> {
        self.read_only
    }

    /// Makes a copy an ordinary log, before it is shared.
    pub(crate) fn end_copy(&mut self) {
        debug_assert_eq!(self.read_only, Some(ReadOnlyReason::Copied), "the log is no copy");
        self.read_only = None;
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
    }

    #[inline]
    pub(crate) fn is_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    pub(crate) fn fail(&self) {
        self.failed.store(true, SeqCst);
    }

    /// The invariant that put the log into its terminal state, if one did.
    pub(crate) fn broken_invariant(&self) -> Option<&'static str> {
        self.broken_invariant.get().copied()
    }

    /// Records a broken invariant. Returns `false` if one was recorded before.
    pub(crate) fn break_invariant(&self, invariant: &'static str) -> bool {
        self.broken_invariant.set(invariant).is_ok()
    }
}
