//! Changing the members of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::ChangeMembers;
use tokio::time::Instant;

use crate::machine::Machine;
use crate::node::commands::{Commands, Member};
use crate::node::error::NodeError;
use crate::node::start::{Core, Node};
use crate::node::transfer::LAG;

impl<M: Machine<Commands>> Node<M> {
    /// Adds a node, which gets the state first, and then a vote. Only on the leader. Adding a voter
    /// again changes its addresses.
    ///
    /// # Errors
    /// Those of [`Node::propose`]; [`NodeError::Membership`] while another change is not committed,
    /// and for a number that another node has: one with another [`store`](Member::store).
    pub async fn add(&self, id: u64, member: Member, patience: Duration) -> Result<(), NodeError> {
        let deadline = Instant::now() + patience;
        let remaining = || deadline.saturating_duration_since(Instant::now());
        // A new leader has entries of terms before that are not committed: maybe a change.
        let term = self.prove_leadership(remaining()).await?;
        let known = within(remaining(), self.introduce(id, member.clone())).await?;
        if known.is_some_and(|(_, votes)| votes) {
            return Ok(());
        }
        self.catch_up(id, term, LAG, remaining()).await?;
        let raft = self.raft.clone();
        let promoted = async move {
            raft.change_membership(ChangeMembers::AddVoterIds(BTreeSet::from([id])), true).await?;
            Ok(())
        };
        changed(promoted, remaining()).await
    }

    /// Makes it a node without a vote, or gives a node that there is these addresses. Returns what
    /// it was before.
    async fn introduce(
        &self,
        id: u64,
        member: Member,
    ) -> Result<Option<(Member, bool)>, NodeError> {
        let _turn = self.changes.lock().await;
        let known = known(&self.raft, id).await?;
        match &known {
            Some((known, _)) if known.store != member.store => {
                let why = "another node has it; a node that lost its data needs a new number";
                return Err(NodeError::Membership(format!("the number {id}: {why}")));
            }
            Some((known, _)) if *known == member => {}
            Some(_) => {
                let moved = ChangeMembers::SetNodes(BTreeMap::from([(id, member)]));
                drop(self.raft.change_membership(moved, true).await?);
            }
            None => drop(self.raft.add_learner(id, member, false).await?),
        }
        Ok(known)
    }

    /// The member of this number, as this leader, proven, has it.
    ///
    /// # Errors
    /// Those of [`Node::prove_leadership`].
    pub async fn member(&self, id: u64, patience: Duration) -> Result<Option<Member>, NodeError> {
        self.prove_leadership(patience).await?;
        Ok(known(&self.raft, id).await?.map(|(member, _)| member))
    }

    /// Removes a node. Only on the leader, which may not remove itself: transfer leadership first.
    ///
    /// # Errors
    /// As [`Node::add`]; [`NodeError::Membership`] for the leader itself, for the last voter, and
    /// for a number that is none of the cluster's.
    pub async fn remove(&self, id: u64, patience: Duration) -> Result<(), NodeError> {
        let status = self.status();
        let refused = |why: &str| Err(NodeError::Membership(format!("node {id} {why}")));
        if !status.members.contains_key(&id) {
            return refused("does not belong to the cluster");
        }
        if status.leads() && status.node == id {
            return refused("leads; transfer its leadership first");
        }
        self.prove_leadership(patience).await?;
        let (raft, is_voter) = (self.raft.clone(), status.voters.contains(&id));
        let removed = async move {
            let ids = BTreeSet::from([id]);
            if is_voter {
                raft.change_membership(ChangeMembers::RemoveVoters(ids.clone()), false).await?;
            } else {
                raft.change_membership(ChangeMembers::RemoveNodes(ids), false).await?;
            }
            Ok(())
        };
        changed(removed, patience).await
    }
}

/// The member of this number, and whether it votes: what the leader has last, committed or not.
async fn known<M: Machine<Commands>>(
    raft: &Core<M>,
    id: u64,
) -> Result<Option<(Member, bool)>, NodeError> {
    let known = raft.with_raft_state(move |state| {
        let members = state.membership_state.effective();
        let votes = members.voter_ids().any(|voter| voter == id);
        members.get_node(&id).map(|member| (member.clone(), votes))
    });
    Ok(known.await?)
}

async fn within<T>(
    patience: Duration,
    step: impl Future<Output = Result<T, NodeError>>,
) -> Result<T, NodeError> {
    tokio::time::timeout(patience, step).await.unwrap_or(Err(NodeError::TimedOut))
}

async fn changed(
    change: impl Future<Output = Result<(), NodeError>> + Send + 'static,
    patience: Duration,
) -> Result<(), NodeError> {
    // Between the two steps of a change there is no way back.
    let change = tokio::spawn(change);
    match tokio::time::timeout(patience, change).await {
        Ok(Ok(changed)) => changed,
        Ok(Err(_)) => Err(NodeError::Unknown),
        Err(_) => Err(NodeError::TimedOut),
    }
}
