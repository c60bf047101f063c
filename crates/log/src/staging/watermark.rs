//! The durable watermark: how far the log is durable, readable without a lock.

use crate::runtime::sync::{AtomicBool, AtomicU64, Ordering};

/// The durable watermark. The position is stored first, so that a reader of the sequence number
/// sees a position at least as far.
#[derive(Debug)]
pub(crate) struct DurableWatermark {
    position: AtomicU64,
    seq: AtomicU64,
    terminal: AtomicBool,
}

impl DurableWatermark {
    pub(crate) fn new(position: u64, seq: u64) -> Self {
        Self {
            position: AtomicU64::new(position),
            seq: AtomicU64::new(seq),
            terminal: AtomicBool::new(false),
        }
    }

    pub(crate) fn publish(&self, position: u64, seq: u64) {
        self.position.store(position, Ordering::Release);
        self.seq.store(seq, Ordering::SeqCst);
    }

    /// The sequence number of the last durable record.
    #[inline]
    pub(crate) fn seq(&self) -> u64 {
        self.seq.load(Ordering::SeqCst)
    }

    /// The position after that record.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    pub(crate) fn set_terminal(&self) {
        self.terminal.store(true, Ordering::SeqCst);
    }

    /// Whether the log may have stopped accepting records.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal.load(Ordering::SeqCst)
    }
}
