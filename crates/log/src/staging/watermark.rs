//! The durable watermark: how far the log is durable, readable without a lock.
//!
//! A position and a sequence number that belong together are published as one: a reader that
//! combined a position with an older number would take the records between them for delivered.
//! There are two slots. A publication fills the one that is not current and then makes it current.
//! A slot is overwritten only after the other one became current, so a reader whose slot is still
//! current after it was read has both values of one publication. A reader never waits for a
//! publisher that is suspended; it reads again only after a commit has completed meanwhile.

use crate::runtime::sync::{AtomicBool, AtomicU64, Ordering};

/// The durable watermark.
#[derive(Debug)]
pub(crate) struct DurableWatermark {
    /// The number of publications. It names the current slot.
    published: AtomicU64,
    slots: [Slot; 2],
    terminal: AtomicBool,
}

#[derive(Debug)]
struct Slot {
    position: AtomicU64,
    seq: AtomicU64,
}

impl Slot {
    fn new(position: u64, seq: u64) -> Self {
        Self { position: AtomicU64::new(position), seq: AtomicU64::new(seq) }
    }
}

impl DurableWatermark {
    pub(crate) fn new(position: u64, seq: u64) -> Self {
        Self {
            published: AtomicU64::new(0),
            slots: [Slot::new(position, seq), Slot::new(position, seq)],
            terminal: AtomicBool::new(false),
        }
    }

    /// Publishes both values. One thread publishes at a time: the caller holds the state lock.
    pub(crate) fn publish(&self, position: u64, seq: u64) {
        let next = self.fill_next(position, seq);
        self.published.store(next, Ordering::SeqCst);
    }

    /// Fills the slot of the next publication, which readers do not use yet; returns its number.
    pub(crate) fn fill_next(&self, position: u64, seq: u64) -> u64 {
        let next = self.published.load(Ordering::Relaxed) + 1;
        let slot = self.slot(next);
        slot.position.store(position, Ordering::Release);
        slot.seq.store(seq, Ordering::Release);
        next
    }

    /// The position after the last durable record, and its sequence number, of one moment.
    #[inline]
    pub(crate) fn load(&self) -> (u64, u64) {
        let mut current = self.published.load(Ordering::SeqCst);
        loop {
            let slot = self.slot(current);
            // Acquire: a reader of a later publication's value sees a later number below.
            let position = slot.position.load(Ordering::Acquire);
            let seq = slot.seq.load(Ordering::Acquire);
            let now = self.published.load(Ordering::SeqCst);
            if now == current {
                return (position, seq);
            }
            current = now;
        }
    }

    /// The sequence number of the last durable record.
    #[inline]
    pub(crate) fn seq(&self) -> u64 {
        self.load().1
    }

    /// The position after that record.
    pub(crate) fn position(&self) -> u64 {
        self.load().0
    }

    pub(crate) fn set_terminal(&self) {
        self.terminal.store(true, Ordering::SeqCst);
    }

    /// Whether the log may have stopped accepting records.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal.load(Ordering::SeqCst)
    }

    #[inline]
    fn slot(&self, publication: u64) -> &Slot {
        &self.slots[(publication % 2) as usize]
    }
}
