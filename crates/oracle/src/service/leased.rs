//! Answering under a lease: without a proof, a queue or a wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use esker_raft::{Node, Replica};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::allotment::Allotment;
use crate::epochs::{Advance, Epochs, Owner};
use crate::range::Range;

/// An epoch, and when this process took it up.
pub(crate) type Taken = (u64, Instant);

/// What this process hands out, and since when it is known.
#[derive(Debug, Default)]
pub(crate) struct Current(Mutex<Option<(Allotment, Instant)>>);

impl Current {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Option<(Allotment, Instant)>) -> T) -> T {
        act(&mut self.0.lock())
    }
}

/// The way of a request that needs no proof.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) node: Arc<Node>,
    pub(crate) epochs: Replica<Epochs>,
    pub(crate) current: Arc<Current>,
    pub(crate) epoch_interval: Duration,
    /// A request has left to have the epoch advanced.
    pub(crate) asked: AtomicBool,
}

impl Leased {
    /// The term in which this node leads and may answer without a proof what came before this call.
    pub(crate) fn term(&self) -> Option<u64> {
        let is_on = self.epochs.with(Epochs::lease_reads);
        is_on.then(|| self.node.leased_term()).flatten()
    }

    /// So many timestamps, if this node has a lease and an epoch of its own that is young enough.
    /// The first request that finds the epoch older than an interval gets none: it goes the other
    /// way, on which the epoch advances. Until then the others go on for another interval.
    pub(crate) fn take(&self, count: u32) -> Option<Range> {
        let term = self.term()?;
        self.current.with(|current| {
            let (allotment, since) =
                current.as_mut().filter(|(ours, _)| ours.owner().term == term)?;
            let age = since.elapsed();
            let is_old = age > self.epoch_interval;
            if is_old && !self.asked.swap(true, SeqCst)
                || age > self.epoch_interval.saturating_mul(2)
            {
                return None;
            }
            allotment.take(count)
        })
    }

    /// Hands out of the epoch that the owner's command made from now on, and of no other: an epoch
    /// has one taker, whatever else runs on the node. Returns it, and when that was.
    pub(crate) fn take_up(&self, owner: Owner, answer: &Bytes) -> Option<Taken> {
        let made = Advance::answered(answer)?;
        let epochs = self.epochs.with(|epochs| *epochs);
        let now = Instant::now();
        self.current.with(|current| {
            let before = current.as_ref().map(|(allotment, _)| allotment);
            let allotment = Allotment::of(&epochs, owner, before)?;
            (allotment.epoch() == made).then(|| *current = Some((allotment, now)))?;
            Some((made, now))
        })
    }

    /// The next request that finds the epoch old has it advanced.
    pub(crate) fn renew(&self) {
        self.asked.store(false, SeqCst);
    }
}
