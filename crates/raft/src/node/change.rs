//! Changes of the cluster that a caller waits for, and the error when the wait ends.
//!
//! A change of the members takes several entries. An obstacle may be transient: a quorum that a
//! busy machine kept from answering, or an earlier change. So a change is tried again until the
//! caller's deadline, each time from the members at that time. A proposed change is followed to its
//! end, whether the caller still waits or not: a joint configuration needs two majorities.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use openraft::ChangeMembers;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep, timeout_at};

use crate::base::type_config::EntryId;
use crate::node::Node;
use crate::node::commands::Member;
use crate::node::error::NodeError;
use crate::node::joint::{
    RETAIN_REMOVED_VOTERS, end_joint_configuration, leads_joint_configuration,
};
use crate::node::replica::NodeRaft;

/// The delay before a change is tried again.
pub(crate) const CHANGE_RETRY_DELAY: Duration = Duration::from_millis(20);

/// The lock that the one change of the members holds.
pub(crate) type ChangeTurn = OwnedMutexGuard<()>;

/// The deadline of a change, and whether something was proposed for it.
#[derive(Debug)]
pub(crate) struct ChangeProgress {
    deadline: Instant,
    is_proposed: Arc<AtomicBool>,
}

impl ChangeProgress {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { deadline: Instant::now() + patience, is_proposed: Arc::default() }
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The time to wait for a node that does not answer: a quarter of the remaining time, and
    /// `least` at least. A busy machine may keep a node from answering for many leases.
    pub(crate) fn silence_timeout(&self, least: Duration) -> Duration {
        let remaining = self.remaining();
        (remaining / 4).max(least).min(remaining)
    }

    /// Waits for an answer of openraft's core to the deadline. It answers nothing while the disk
    /// stalls.
    pub(crate) async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, NodeError>>,
    ) -> Result<T, NodeError> {
        timeout_at(self.deadline, answer).await.unwrap_or(Err(NodeError::TimedOut))
    }

    pub(crate) fn is_proposed(&self) -> bool {
        self.is_proposed.load(SeqCst)
    }

    /// Records that a step is proposed: from now on the change may happen.
    pub(crate) fn mark_proposed(&self) {
        self.is_proposed.store(true, SeqCst);
    }

    /// Waits for a pause if the change is to be tried again after this error. Otherwise returns the
    /// error for its caller.
    pub(crate) async fn retry_after(
        &self,
        error: NodeError,
        pause: Duration,
    ) -> Result<(), NodeError> {
        if !error.is_transient() || self.remaining() <= pause {
            return Err(self.outcome(error));
        }
        sleep(pause).await;
        Ok(())
    }

    /// The error for the caller of a change that ends with `error`.
    fn outcome(&self, error: NodeError) -> NodeError {
        match (self.is_proposed(), error) {
            (true, NodeError::NotLeader { .. }) => NodeError::Unknown,
            (true, error) if error.is_transient() => NodeError::TimedOut,
            (false, NodeError::TimedOut) => {
                let why = "a node lacks entries, or this leader waits for its disk";
                NodeError::NotProposed(why.into())
            }
            (false, error @ (NodeError::NoQuorum | NodeError::LeadershipTransfer)) => {
                NodeError::NotProposed(error.to_string())
            }
            (_, error) => error,
        }
    }
}

impl Node {
    /// Proves that this node leads, as [`Node::ensure_linearizable`], and waits until the deadline
    /// for a quorum.
    pub(crate) async fn prove_until(&self, progress: &ChangeProgress) -> Result<u64, NodeError> {
        loop {
            let error = match self.ensure_linearizable(progress.remaining()).await {
                Err(NodeError::TimedOut) => NodeError::NoQuorum,
                Err(error) => error,
                Ok(term) => return Ok(term),
            };
            progress.retry_after(error, CHANGE_RETRY_DELAY).await?;
        }
    }

    /// Waits until this node leads and makes no other change. Returns the term.
    pub(crate) async fn begin_change(
        &self,
        progress: &ChangeProgress,
    ) -> Result<(u64, ChangeTurn), NodeError> {
        // A new leader has entries of terms before that are not committed: maybe a change.
        let term = self.prove_until(progress).await?;
        Ok((term, self.change_turn(progress).await?))
    }

    /// Ends a joint configuration that an earlier leader left: any change would do that alone.
    pub(crate) async fn end_earlier_change(
        &self,
        turn: ChangeTurn,
        progress: &ChangeProgress,
    ) -> Result<ChangeTurn, NodeError> {
        if !progress.within(async { Ok(leads_joint_configuration(&self.raft).await) }).await? {
            return Ok(turn);
        }
        let nothing = ChangeMembers::AddVoterIds([].into());
        self.change_members(turn, nothing, progress).await
    }

    /// Waits until no other change is made.
    pub(crate) async fn change_turn(
        &self,
        progress: &ChangeProgress,
    ) -> Result<ChangeTurn, NodeError> {
        let turn = Arc::clone(&self.changes).lock_owned();
        timeout_at(progress.deadline, turn)
            .await
            .map_err(|_| NodeError::NotProposed("another change of the members is made".into()))
    }

    /// Proposes a change of the members, and waits until it is committed and no joint configuration
    /// is left. It continues, and keeps the turn, if the caller gives up.
    pub(crate) async fn change_members(
        &self,
        turn: ChangeTurn,
        change: ChangeMembers<u64, Member>,
        progress: &ChangeProgress,
    ) -> Result<ChangeTurn, NodeError> {
        let (raft, is_proposed) = (self.raft.clone(), Arc::clone(&progress.is_proposed));
        let changed = tokio::spawn(async move {
            propose_change(&raft, change, &is_proposed).await?;
            Ok(turn)
        });
        match timeout_at(progress.deadline, changed).await {
            Ok(Ok(changed)) => {
                debug_assert!(
                    changed.is_err() || progress.is_proposed(),
                    "a change that was made counts as proposed"
                );
                changed
            }
            Ok(Err(_panicked)) => {
                progress.mark_proposed();
                Err(NodeError::Unknown)
            }
            Err(_) => {
                progress.mark_proposed();
                Err(NodeError::TimedOut)
            }
        }
    }
}

/// Proposes a change. It counts as proposed from before the proposal on, unless nothing was
/// proposed. After an error of the second step this leader takes that step again.
async fn propose_change(
    raft: &NodeRaft,
    change: ChangeMembers<u64, Member>,
    is_proposed: &AtomicBool,
) -> Result<(), NodeError> {
    let before = last_change(raft).await?;
    let was_proposed = is_proposed.swap(true, SeqCst);
    let error = match raft.change_membership(change, RETAIN_REMOVED_VOTERS).await {
        Ok(_) => return Ok(()),
        Err(error) => NodeError::from(error),
    };
    // An entry that was discarded has another error.
    if !error.may_still_happen() && last_change(raft).await == Ok(before) {
        is_proposed.store(was_proposed, SeqCst);
    }
    end_joint_configuration(raft).await;
    Err(error)
}

/// The entry of the newest members, committed or not.
async fn last_change(raft: &NodeRaft) -> Result<Option<EntryId>, NodeError> {
    let last = raft.with_raft_state(|state| *state.membership_state.effective().log_id());
    Ok(last.await?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::{BTreeMap, BTreeSet};

    use esker_disk::Op;
    use esker_disk::sim::{Effect, Fault, Gate, SimDisk};

    use super::*;
    use crate::node::start::tests::{TEST_TIMEOUT, alone};

    /// A caller that reads "nothing was proposed" may take the change back. It got that
    /// for changes that had been committed.
    #[test]
    fn what_is_known_of_a_change_is_in_its_error() {
        let progress = ChangeProgress::new(Duration::ZERO);
        let hindered = || NodeError::NotProposed("another change".into());
        let passing = [NodeError::NoQuorum, NodeError::LeadershipTransfer, hindered()];
        for error in passing.clone() {
            let outcome = progress.outcome(error);
            assert!(matches!(outcome, NodeError::NotProposed(_)), "{outcome}");
            assert!(!outcome.may_still_happen());
        }
        let other = NodeError::NotLeader { leader: None };
        assert_eq!(progress.outcome(other.clone()), other);
        progress.mark_proposed();
        for error in passing.into_iter().chain([NodeError::TimedOut]) {
            assert_eq!(progress.outcome(error), NodeError::TimedOut);
        }
        assert_eq!(progress.outcome(other), NodeError::Unknown);
        let refused = NodeError::Membership("it does not answer".into());
        assert_eq!(progress.outcome(refused.clone()), refused);
        for open in [NodeError::TimedOut, NodeError::Unknown, NodeError::Stopped(String::new())] {
            assert!(open.may_still_happen(), "{open}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_hinders_a_change_for_a_while_is_waited_out_until_the_deadline() {
        let (pause, begun) = (Duration::from_millis(20), Instant::now());
        let progress = ChangeProgress::new(Duration::from_secs(5));
        let mut tries = 0;
        let ended = loop {
            tries += 1;
            if let Err(ended) = progress.retry_after(NodeError::NoQuorum, pause).await {
                break ended;
            }
        };
        assert!(matches!(ended, NodeError::NotProposed(_)), "{ended}");
        assert!(begun.elapsed() > Duration::from_millis(4900) && tries > 200, "{tries}");
        let progress = ChangeProgress::new(Duration::from_secs(5));
        let final_one = NodeError::Membership("refused".into());
        assert_eq!(progress.retry_after(final_one.clone(), pause).await, Err(final_one));
    }

    /// A step of a change counted as proposed only when its outcome was known: an error between
    /// said that nothing was proposed.
    #[test]
    fn a_step_counts_as_proposed_from_before_it_is() {
        let disk = SimDisk::new(1);
        let (runtime, node) = alone(&disk);
        let gate = Gate::new();
        disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())));
        let (is_proposed, raft) = (Arc::new(AtomicBool::new(false)), node.raft.clone());
        let noted = Arc::clone(&is_proposed);
        let learner = BTreeMap::from([(2, Member::default())]);
        let change = ChangeMembers::AddNodes(learner);
        let step = runtime.spawn(async move { propose_change(&raft, change, &noted).await });
        let deadline = std::time::Instant::now() + TEST_TIMEOUT;
        while !is_proposed.load(SeqCst) && std::time::Instant::now() < deadline {
            std::thread::sleep(CHANGE_RETRY_DELAY);
        }
        let (counted, is_done) = (is_proposed.load(SeqCst), step.is_finished());
        gate.open();
        disk.clear_faults();
        runtime.block_on(step).unwrap().unwrap();
        assert!(counted && !is_done, "{counted} {is_done}");
        // One that is refused before it is proposed does not count.
        let refused = AtomicBool::new(false);
        let unknown = ChangeMembers::AddVoterIds(BTreeSet::from([9]));
        let error = runtime.block_on(propose_change(&node.raft, unknown, &refused)).unwrap_err();
        assert!(matches!(error, NodeError::Membership(_)), "{error}");
        assert!(!refused.load(SeqCst));
        node.stop().unwrap();
    }

    /// The members were asked for without a deadline: a leader whose core waited for its disk kept
    /// the caller of a change for as long.
    #[test]
    fn a_core_that_does_not_answer_is_not_waited_for_after_the_deadline() {
        let (runtime, node) = alone(&SimDisk::new(1));
        let (release, waits) = std::sync::mpsc::channel::<()>();
        let wait = move |_: &_| {
            let _ = waits.recv_timeout(TEST_TIMEOUT);
        };
        runtime.block_on(node.raft.external_request(wait)).unwrap();
        let callers = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (begun, patience) = (std::time::Instant::now(), Duration::from_millis(50));
        let ended = callers.block_on(async {
            let progress = ChangeProgress::new(patience);
            let turn = Arc::clone(&node.changes).lock_owned().await;
            node.end_earlier_change(turn, &progress).await.map(drop)
        });
        let (elapsed, _) = (begun.elapsed(), release.send(()));
        assert_eq!(ended, Err(NodeError::TimedOut));
        assert!(elapsed < TEST_TIMEOUT, "{elapsed:?}");
        node.stop().unwrap();
    }
}
