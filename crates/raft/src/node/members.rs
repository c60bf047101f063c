//! Changing the members of the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use openraft::ChangeMembers;

use crate::machine::Machine;
use crate::node::commands::{Commands, Member};
use crate::node::error::NodeError;
use crate::node::start::Node;

impl<M: Machine<Commands>> Node<M> {
    /// Adds a node, which gets the state first, and then a vote. Only on the leader. Adding a voter
    /// again changes its addresses.
    ///
    /// # Errors
    /// Those of [`Node::propose`]; [`NodeError::Membership`] while another change is not committed.
    pub async fn add(&self, id: u64, member: Member, patience: Duration) -> Result<(), NodeError> {
        // A new leader has entries of terms before that are not committed: maybe a change.
        self.prove_leadership(patience).await?;
        let raft = self.raft.clone();
        let added = async move {
            // It waits until the node has caught up.
            raft.add_learner(id, member, true).await?;
            raft.change_membership(ChangeMembers::AddVoterIds(BTreeSet::from([id])), true).await?;
            Ok(())
        };
        changed(added, patience).await
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
