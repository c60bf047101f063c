//! The epochs that this process issues: it takes them up and hands out their timestamps, with a
//! proof, or under a lease without a proof, a queue or a wait.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use esker_raft::{Node, NodeError, Replica};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::allotment::Allotment;
use crate::epochs::{Advance, Epochs, Owner};
use crate::oracle_state::OracleState;
use crate::range::Range;
use crate::service::error::OracleError;
use crate::timestamp::Timestamp;

/// An epoch of this process, and the time when the process took it up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EpochStart {
    pub(crate) epoch: u64,
    pub(crate) at: Instant,
}

/// The allotment that this process hands out.
#[derive(Debug)]
struct CurrentAllotment {
    allotment: Allotment,
    taken_up: Instant,
}

/// The state that requests change: one at a time.
#[derive(Debug, Default)]
struct IssueState {
    current: Option<CurrentAllotment>,
    /// The highest timestamp that was handed out.
    last: Option<Timestamp>,
}

impl IssueState {
    /// Hands out timestamps of the current allotment, if it has as many.
    fn take(&mut self, count: u32, index_max: u64) -> Result<Option<Range>, &'static str> {
        let Some(current) = &mut self.current else { return Ok(None) };
        let Some(range) = current.allotment.take(count, index_max) else { return Ok(None) };
        let Some(last) = range.last().filter(|_| range.count == count) else {
            return Err("an allotment hands out as many timestamps as it is asked for");
        };
        if self.last >= Some(range.first) {
            return Err("no timestamp is handed out twice, or below an earlier one");
        }
        self.last = Some(last);
        Ok(Some(range))
    }
}

/// The epochs that this process issues on its node.
#[derive(Debug)]
pub(crate) struct IssuedEpochs {
    node: Arc<Node>,
    replica: Replica<OracleState>,
    state: Mutex<IssueState>,
    epoch_interval: Duration,
    /// Set while a request is on its way to have the epoch advanced.
    is_renewing: AtomicBool,
    /// The invariant that does not hold. Then nothing is handed out any more.
    broken: OnceLock<&'static str>,
}

impl IssuedEpochs {
    pub(crate) fn new(
        node: Arc<Node>,
        replica: Replica<OracleState>,
        epoch_interval: Duration,
    ) -> Self {
        Self {
            node,
            replica,
            state: Mutex::default(),
            epoch_interval,
            is_renewing: AtomicBool::new(false),
            broken: OnceLock::new(),
        }
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The replicated epochs, as far as this node has applied them.
    pub(crate) fn epochs(&self) -> Epochs {
        self.replica.with(|state| *state.epochs())
    }

    /// The age above which an epoch is used for no request.
    pub(crate) fn epoch_age_max(&self) -> Duration {
        self.epoch_interval.saturating_mul(2)
    }

    /// Fails if an invariant does not hold.
    pub(crate) fn check(&self) -> Result<(), OracleError> {
        self.broken.get().map_or(Ok(()), |invariant| Err(OracleError::Internal { invariant }))
    }

    /// Fails the oracle for good: an invariant does not hold. Panics in a debug build.
    pub(crate) fn fail(&self, invariant: &'static str) -> OracleError {
        if self.broken.set(invariant).is_ok() {
            tracing::error!(
                invariant,
                "an invariant does not hold: no timestamp is issued any more"
            );
        }
        debug_assert!(false, "broken invariant: {invariant}");
        OracleError::Internal { invariant }
    }

    /// The term in which this node leads and may answer, without a proof, requests that came before
    /// this call.
    pub(crate) fn term(&self) -> Option<u64> {
        let is_on = self.replica.with(|state| state.epochs().lease_reads());
        is_on.then(|| self.node.leased_term()).flatten()
    }

    /// Hands out timestamps, if this node has a lease and an epoch of its own that is young enough.
    ///
    /// The first request that finds the epoch older than an interval gets none: it has the epoch
    /// advanced by a proof. Until then the others use the epoch for another interval.
    pub(crate) fn take_leased(
        &self,
        count: u32,
        index_max: u64,
    ) -> Result<Option<Range>, OracleError> {
        self.check()?;
        let Some(term) = self.term() else { return Ok(None) };
        let mut state = self.state.lock();
        let current = state.current.as_ref();
        let Some(current) = current.filter(|ours| ours.allotment.owner().term == term) else {
            return Ok(None);
        };
        let age = current.taken_up.elapsed();
        if age > self.epoch_age_max() {
            return Ok(None);
        }
        if age > self.epoch_interval && !self.is_renewing.swap(true, SeqCst) {
            return Ok(None);
        }
        state.take(count, index_max).map_err(|invariant| self.fail(invariant))
    }

    /// Hands out timestamps of this owner's epoch, if it has as many. The caller has a proof.
    pub(crate) fn take(
        &self,
        owner: Owner,
        count: u32,
        index_max: u64,
    ) -> Result<Option<Range>, OracleError> {
        self.check()?;
        let mut state = self.state.lock();
        match &state.current {
            Some(current) if current.allotment.owner() == owner => {
                state.take(count, index_max).map_err(|invariant| self.fail(invariant))
            }
            _ => Ok(None),
        }
    }

    /// The current epoch of this process, and its owner.
    pub(crate) fn current(&self) -> Option<(Owner, EpochStart)> {
        let state = self.state.lock();
        let current = state.current.as_ref()?;
        let epoch = current.allotment.epoch();
        Some((current.allotment.owner(), EpochStart { epoch, at: current.taken_up }))
    }

    /// Takes up the epoch that the owner's command made, and no other: an epoch has one taker,
    /// whatever else runs on the node. Returns `None` for the epoch of another command.
    pub(crate) fn take_up(
        &self,
        owner: Owner,
        answer: &Bytes,
    ) -> Result<Option<EpochStart>, NodeError> {
        let Some(made) = Advance::answered(answer) else { return Ok(None) };
        let epochs = self.epochs();
        if epochs.last() < made {
            let invariant = "a node has applied the command that it answers";
            self.fail(invariant);
            return Err(NodeError::Internal { invariant });
        }
        let now = Instant::now();
        let mut state = self.state.lock();
        let before = state.current.as_ref().map(|current| &current.allotment);
        let allotment = Allotment::take_up(&epochs, owner, before);
        let Some(allotment) = allotment.filter(|allotment| allotment.epoch() == made) else {
            return Ok(None);
        };
        debug_assert!(
            state.last.is_none_or(|last| last.epoch < made),
            "an epoch is taken up before any of its timestamps, or later ones, are handed out"
        );
        state.current = Some(CurrentAllotment { allotment, taken_up: now });
        Ok(Some(EpochStart { epoch: made, at: now }))
    }

    /// Lets the next request that finds the epoch old have it advanced.
    pub(crate) fn renew(&self) {
        self.is_renewing.store(false, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn allotment(epoch: u64) -> Allotment {
        let owner = Owner { term: 1, node: 1, session: 7 };
        let mut epochs = Epochs::default();
        epochs.apply(&Advance { owner, wall: epoch }.encode()).unwrap();
        Allotment::take_up(&epochs, owner, None).unwrap()
    }

    /// An allotment that was taken up twice would hand out its indexes again.
    #[test]
    fn no_timestamp_is_handed_out_twice() {
        let mut state = IssueState::default();
        assert_eq!(state.take(1, u64::MAX), Ok(None));
        for (epoch, is_higher) in [(50, true), (60, true), (60, false), (40, false), (61, true)] {
            let taken_up = Instant::now();
            state.current = Some(CurrentAllotment { allotment: allotment(epoch), taken_up });
            let taken = state.take(3, u64::MAX);
            assert_eq!(taken.is_ok(), is_higher, "{epoch}: {taken:?}");
            if let Ok(range) = taken {
                let first = Timestamp { epoch, index: 1 };
                assert_eq!(range, Some(Range { first, count: 3 }));
            }
        }
    }
}
