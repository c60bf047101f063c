//! Changes of the members of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::ChangeMembers;
use tokio::time::Instant;

use crate::node::Node;
use crate::node::change::{CHANGE_RETRY_DELAY, ChangeProgress, ChangeTurn};
use crate::node::commands::Member;
use crate::node::error::NodeError;
use crate::node::follower_waits::CATCH_UP_LAG_ENTRIES;
use crate::node::replica::NodeRaft;
use crate::node::status::Status;

/// The most numbers of removed nodes that are kept.
const REMOVED_NUMBERS_MAX: usize = 4096;

impl Node {
    /// Adds a node, which gets the state first, and then a vote. Only on the leader. Adding a voter
    /// again changes its addresses. Changes that this node makes take turns.
    ///
    /// Waits until `patience` is over for a quorum that does not answer, and for other changes.
    /// What was proposed is followed to its end, also when the caller gives up.
    ///
    /// # Cancel safety
    /// A step that was proposed stays so when the future is dropped. The node may be a member
    /// without a vote then.
    ///
    /// # Errors
    /// [`NodeError::NotProposed`] after `patience` and [`NodeError::NotLeader`]: nothing was
    /// proposed. [`NodeError::TimedOut`] after `patience` and [`NodeError::Unknown`]: a step was,
    /// and may still happen; adding the node again does what is left.
    ///
    /// [`NodeError::Membership`] for a number that another node has, one with another
    /// [`store`](Member::store), and for one that was removed. Also for a new node that does not
    /// answer, or with which too few voters would: it then is a member without a vote, which can be
    /// added again, and removed.
    pub async fn add(&self, id: u64, member: Member, patience: Duration) -> Result<(), NodeError> {
        let progress = ChangeProgress::new(patience);
        while let Err(error) = self.try_add(id, &member, &progress).await {
            progress.retry_after(self.or_invariant(error), CHANGE_RETRY_DELAY).await?;
        }
        Ok(())
    }

    /// Takes the steps of adding a node that are left.
    async fn try_add(
        &self,
        id: u64,
        member: &Member,
        progress: &ChangeProgress,
    ) -> Result<(), NodeError> {
        let (term, turn) = self.begin_change(progress).await?;
        let turn = self.end_earlier_change(turn, progress).await?;
        if self.introduce(turn, id, member, progress).await? {
            return Ok(());
        }
        let answered = |status: &Status| status.matched.get(&id).is_some_and(Option::is_some);
        self.check_answers(id, member, term, answered, progress).await?;
        self.catch_up(id, term, CATCH_UP_LAG_ENTRIES, progress.remaining()).await?;
        let turn = self.change_turn(progress).await?;
        // It may have gone meanwhile, and so may others.
        let lease = self.lease();
        let answers = |status: &Status| status.has_heard(id, lease);
        self.check_answers(id, member, term, answers, progress).await?;
        let with = |status: &Status| {
            let others = status.voters.iter().copied().filter(|voter| *voter != id);
            others.chain([id]).collect()
        };
        let what = format!("with node {id}");
        self.check_quorum_remains(&what, term, with, lease, progress).await?;
        let promoted = ChangeMembers::AddVoterIds(BTreeSet::from([id]));
        self.change_members(turn, promoted, progress).await.map(drop)
    }

    /// Fails unless the node answers: a change to voters of which too few answer is never
    /// committed, and neither is any change that would undo it. The node has twelve leases, of
    /// which the first connection takes some, or a quarter of the remaining time.
    async fn check_answers(
        &self,
        id: u64,
        member: &Member,
        term: u64,
        answers: impl Fn(&Status) -> bool + Send + Sync,
        progress: &ChangeProgress,
    ) -> Result<(), NodeError> {
        let patience = progress.silence_timeout(self.silence_max() * 4);
        match self.wait_as_leader(term, patience, answers).await {
            Err(NodeError::TimedOut) => Err(NodeError::Membership(format!(
                "node {id} gets no vote: it does not answer at {}, where the other nodes connect \
                 to it (--raft-advertise); start it where it is reached, or remove it",
                member.raft
            ))),
            answered => answered,
        }
    }

    /// Makes the node a member without a vote, or changes the addresses of a member. Returns
    /// whether it has a vote.
    async fn introduce(
        &self,
        turn: ChangeTurn,
        id: u64,
        member: &Member,
        progress: &ChangeProgress,
    ) -> Result<bool, NodeError> {
        let known = progress.within(find_member(&self.raft, id)).await?;
        let change = match &known {
            Some((known, _)) if known.store != member.store => {
                let why = "another node has it; a node that lost its data needs a new number";
                return Err(NodeError::Membership(format!("the number {id}: {why}")));
            }
            Some((known, _)) if known.is_at(member) => None,
            Some((known, _)) => {
                let member = Member { removed: known.removed.clone(), ..member.clone() };
                Some(ChangeMembers::SetNodes(BTreeMap::from([(id, member)])))
            }
            None if progress.within(removed_numbers(&self.raft)).await?.contains(&id) => {
                let why = "was removed, and is not given again: its node has forgotten its votes";
                return Err(NodeError::Membership(format!("the number {id} {why}")));
            }
            None => {
                let member = Member { removed: Vec::new(), ..member.clone() };
                Some(ChangeMembers::AddNodes(BTreeMap::from([(id, member)])))
            }
        };
        if let Some(change) = change {
            self.change_members(turn, change, progress).await?;
        }
        Ok(known.is_some_and(|(_, votes)| votes))
    }

    /// The member of this number, after a proof that this node leads.
    ///
    /// # Errors
    /// As [`Node::ensure_linearizable`].
    pub async fn member(&self, id: u64, patience: Duration) -> Result<Option<Member>, NodeError> {
        let progress = ChangeProgress::new(patience);
        self.ensure_linearizable(patience).await?;
        let found = progress.within(find_member(&self.raft, id)).await;
        Ok(found.map_err(|error| self.or_invariant(error))?.map(|(member, _)| member))
    }

    /// Returns whether a node of this number was removed, after a proof that this node leads. A
    /// member was not, although a removal of it may have begun: its number is kept first.
    ///
    /// # Errors
    /// As [`Node::ensure_linearizable`].
    pub async fn was_removed(&self, id: u64, patience: Duration) -> Result<bool, NodeError> {
        let progress = ChangeProgress::new(patience);
        self.ensure_linearizable(patience).await?;
        let was_removed = self.raft.with_raft_state(move |state| {
            let members = state.membership_state.effective();
            let is_kept = members.nodes().any(|(_, member)| member.removed.contains(&id));
            is_kept && members.get_node(&id).is_none()
        });
        let was_removed = progress.within(async { Ok(was_removed.await?) }).await;
        was_removed.map_err(|error| self.or_invariant(error))
    }

    /// Removes a node for good. Only on the leader, which may not remove itself: transfer
    /// leadership first.
    ///
    /// Its number is not given again. A member that lags may still count on the vote of that
    /// number: a node that has it and an empty log would elect a leader without the newest entries.
    /// So the leader's own member keeps the number, before the node is removed.
    ///
    /// # Errors
    /// As [`Node::add`]; [`NodeError::Membership`] for the leader itself, for the last voter, for a
    /// number that is none of the cluster's, if too few of the other voters answer, and after 4,096
    /// removals.
    pub async fn remove(&self, id: u64, patience: Duration) -> Result<(), NodeError> {
        let progress = ChangeProgress::new(patience);
        let mut was_member = false;
        while let Err(error) = self.try_remove(id, &mut was_member, &progress).await {
            progress.retry_after(self.or_invariant(error), CHANGE_RETRY_DELAY).await?;
        }
        Ok(())
    }

    /// Takes the steps of removing a node that are left. An earlier try may have removed it.
    async fn try_remove(
        &self,
        id: u64,
        was_member: &mut bool,
        progress: &ChangeProgress,
    ) -> Result<(), NodeError> {
        // A refusal is final, and only a proven leader knows the members.
        let (term, turn) = self.begin_change(progress).await?;
        *was_member |= progress.within(find_member(&self.raft, id)).await?.is_some();
        let turn = self.end_earlier_change(turn, progress).await?;
        let refused = |why: &str| Err(NodeError::Membership(format!("node {id} {why}")));
        let votes = match progress.within(find_member(&self.raft, id)).await? {
            None if *was_member => return Ok(()),
            None => return refused("does not belong to the cluster"),
            Some(_) if self.id() == id => return refused("leads; transfer its leadership first"),
            Some((_, votes)) => votes,
        };
        let without =
            |status: &Status| status.voters.iter().copied().filter(|voter| *voter != id).collect();
        let what = format!("without node {id}");
        self.check_quorum_remains(&what, term, without, Duration::ZERO, progress).await?;
        let turn = self.keep_number(turn, id, progress).await?;
        let ids = BTreeSet::from([id]);
        let change =
            if votes { ChangeMembers::RemoveVoters(ids) } else { ChangeMembers::RemoveNodes(ids) };
        let _turn = self.change_members(turn, change, progress).await?;
        match progress.within(find_member(&self.raft, id)).await? {
            None => Ok(()),
            Some(_) => refused("is still a member"),
        }
    }

    /// Fails unless a majority of the voters after a change answers: otherwise nothing could be
    /// committed any more, not even the reversal. A voter counts that acknowledged this leader
    /// within `age_max`, or does while this waits: a leader that was just elected may have no
    /// acknowledgement yet.
    async fn check_quorum_remains(
        &self,
        change: &str,
        term: u64,
        voters: impl Fn(&Status) -> Vec<u64> + Send + Sync,
        age_max: Duration,
        progress: &ChangeProgress,
    ) -> Result<(), NodeError> {
        let patience = progress.silence_timeout(self.silence_max() * 4);
        let since = Instant::now();
        let silent = |status: &Status| -> Vec<u64> {
            let mut silent = voters(status);
            silent.retain(|voter| !status.has_heard(*voter, since.elapsed().max(age_max)));
            silent
        };
        let has_quorum = |status: &Status| silent(status).len() * 2 < voters(status).len();
        match self.wait_as_leader(term, patience, has_quorum).await {
            Err(NodeError::TimedOut) => {}
            answered => return answered,
        }
        let silent = silent(&self.status());
        let why = format!("{change} there is no quorum: {silent:?} do not answer");
        Err(NodeError::Membership(why))
    }

    /// Stores the number of a node that is about to be removed in this leader's member, with all
    /// numbers that were kept before.
    async fn keep_number(
        &self,
        turn: ChangeTurn,
        id: u64,
        progress: &ChangeProgress,
    ) -> Result<ChangeTurn, NodeError> {
        let mut numbers = progress.within(removed_numbers(&self.raft)).await?;
        numbers.insert(id);
        if numbers.len() > REMOVED_NUMBERS_MAX {
            let why = format!("{REMOVED_NUMBERS_MAX} nodes were removed; no more can be");
            return Err(NodeError::Membership(why));
        }
        let own = self.id();
        let Some((mut member, _)) = progress.within(find_member(&self.raft, own)).await? else {
            return Err(NodeError::Membership(format!("node {own} is no member")));
        };
        let numbers: Vec<_> = numbers.into_iter().collect();
        if member.removed == numbers {
            return Ok(turn);
        }
        member.removed = numbers;
        let kept = ChangeMembers::SetNodes(BTreeMap::from([(own, member)]));
        self.change_members(turn, kept, progress).await
    }
}

/// The numbers that the members keep: those of removed nodes, and of one whose removal has begun.
async fn removed_numbers(raft: &NodeRaft) -> Result<BTreeSet<u64>, NodeError> {
    let numbers = raft.with_raft_state(|state| {
        let members = state.membership_state.effective();
        members.nodes().flat_map(|(_, member)| member.removed.iter().copied()).collect()
    });
    Ok(numbers.await?)
}

/// The member of this number, committed or not, and whether it votes.
async fn find_member(raft: &NodeRaft, id: u64) -> Result<Option<(Member, bool)>, NodeError> {
    let known = raft.with_raft_state(move |state| {
        let members = state.membership_state.effective();
        let votes = members.voter_ids().any(|voter| voter == id);
        members.get_node(&id).map(|member| (member.clone(), votes))
    });
    Ok(known.await?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use esker_disk::sim::SimDisk;

    use super::*;
    use crate::node::start::tests::{TEST_TIMEOUT, alone};

    /// A voter whose removal had failed half way counted as removed.
    #[test]
    fn a_member_whose_removal_has_only_begun_was_not_removed() {
        let (runtime, node) = alone(&SimDisk::new(1));
        runtime.block_on(async {
            let progress = ChangeProgress::new(TEST_TIMEOUT);
            let (_, turn) = node.begin_change(&progress).await.unwrap();
            let learner = BTreeMap::from([(2, Member::default())]);
            let added = ChangeMembers::AddNodes(learner);
            let turn = node.change_members(turn, added, &progress).await.unwrap();
            drop(node.keep_number(turn, 2, &progress).await.unwrap());
            assert!(removed_numbers(&node.raft).await.unwrap().contains(&2));
            assert!(!node.was_removed(2, TEST_TIMEOUT).await.unwrap());
            node.remove(2, TEST_TIMEOUT).await.unwrap();
            assert!(node.was_removed(2, TEST_TIMEOUT).await.unwrap());
            assert!(!node.was_removed(3, TEST_TIMEOUT).await.unwrap());
        });
        node.stop().unwrap();
    }
}
