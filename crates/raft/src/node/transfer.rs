//! Transfer of leadership to another node.

use std::cmp::Reverse;
use std::time::Duration;

use tokio::time::Instant;

use crate::node::Node;
use crate::node::change::ChangeProgress;
use crate::node::error::NodeError;
use crate::node::follower_waits::CATCH_UP_LAG_ENTRIES;
use crate::node::status::Status;

impl Node {
    /// Transfers leadership to a voter, and returns when that leads. Transfers take turns.
    ///
    /// Waits first until the target acknowledges a message, and has almost all entries. Then this
    /// node takes no proposal and proves no leadership for the rest of its term, and waits until
    /// the target has all of them: one that lacks an entry ignores the request. A target that does
    /// not get them in three leases is not asked; this node serves for as long, and tries again
    /// until `patience` is over.
    ///
    /// # Cancel safety
    /// A future that is dropped before the target was asked changes nothing. After that this node
    /// does not lead again in its term; if the target was not elected, the cluster elects a leader
    /// after an election timeout.
    ///
    /// # Errors
    /// [`NodeError::NotLeader`]; [`NodeError::NotProposed`] after `patience`, and
    /// [`NodeError::Membership`] for a target that is no other voter, or does not answer: the
    /// target was not asked, and this node stays the leader. [`NodeError::TimedOut`] after
    /// `patience`, and [`NodeError::Unknown`]: it was asked, and may still be elected.
    /// [`NodeError::Membership`], too, if it was asked and another node was elected.
    pub async fn transfer(&self, target: u64, patience: Duration) -> Result<(), NodeError> {
        let progress = ChangeProgress::new(patience);
        let turn =
            tokio::time::timeout(progress.remaining(), self.leadership.transfers.lock()).await;
        let is_made = |_| NodeError::NotProposed("another transfer of leadership is made".into());
        let _turn = turn.map_err(is_made)?;
        let term = loop {
            match self.try_transfer(target, &progress).await {
                Ok(term) => break term,
                Err(error) => {
                    let error = self.or_invariant(error);
                    progress.retry_after(error, self.silence_max()).await?;
                }
            }
        };
        self.wait_for_successor(target, term, progress.remaining()).await
    }

    /// Asks the target to lead. Returns the term that ends.
    async fn try_transfer(&self, target: u64, progress: &ChangeProgress) -> Result<u64, NodeError> {
        let remaining = || progress.remaining();
        let term = self.prove_until(progress).await?;
        let status = self.status();
        if target == status.node || !status.voters.contains(&target) {
            return Err(NodeError::Membership(format!("node {target} is not another voter")));
        }
        // A target that does not answer is given up sooner than one that lags.
        self.hear_from(target, term, progress.silence_timeout(self.silence_max())).await?;
        let acknowledged = Instant::now();
        self.catch_up(target, term, CATCH_UP_LAG_ENTRIES, remaining()).await?;
        if acknowledged.elapsed() > self.lease() {
            self.hear_from(target, term, progress.silence_timeout(self.silence_max())).await?;
        }
        // From here on nothing is served, for as long as a target that stops now may be silent.
        let deadline = Instant::now() + remaining().min(self.silence_max());
        let remaining = || deadline.saturating_duration_since(Instant::now());
        let lacks = || NodeError::NotProposed(format!("node {target} lacks the last entries"));
        let mut resignation = self.leadership.resigned.begin(term);
        // With all permits, earlier proposals are resolved, and later ones are refused.
        let resolved = tokio::time::timeout(remaining(), self.permits.acquire_all()).await;
        let all = resolved.map_err(|_| lacks())?.map_err(|error| self.fail(error))?;
        match self.catch_up(target, term, 0, remaining()).await {
            Err(NodeError::TimedOut) => return Err(lacks()),
            caught_up => caught_up?,
        }
        resignation.make_final();
        progress.mark_proposed();
        // If the caller gives up, openraft is still asked: otherwise this node would lead and serve
        // nothing.
        let raft = self.raft.clone();
        let asked = tokio::spawn(async move { raft.trigger().transfer_leader(target).await });
        let asked = async { Ok(asked.await.map_err(|_| NodeError::Unknown)??) };
        progress.within(asked).await?;
        debug_assert!(
            self.leadership.resigned.covers(term),
            "a node serves nothing in the term in which it asked another one to lead"
        );
        // In a later term this node may lead again.
        drop(all);
        Ok(term)
    }

    /// Waits until a node leads in a later term. Fails if it is not the target.
    async fn wait_for_successor(
        &self,
        target: u64,
        term: u64,
        patience: Duration,
    ) -> Result<(), NodeError> {
        let elected =
            self.wait_for(patience, |status| status.term > term && status.leader.is_some());
        // While this node's disk stalls, openraft notices no leader.
        let contact = async {
            let leader = self.leadership.contact.wait_for_term_above(term).await;
            tokio::time::sleep(self.lease()).await;
            leader
        };
        let leader = tokio::select! {
            biased;
            status = elected => status.and_then(|status| status.leader),
            leader = contact => Some(leader),
        };
        match leader {
            Some(leader) if leader == target => Ok(()),
            Some(leader) => Err(NodeError::Membership(format!(
                "node {target} was asked to lead, and node {leader} was elected"
            ))),
            None => Err(NodeError::TimedOut),
        }
    }

    /// Transfers leadership to the voter that has most entries, and to another one if that does not
    /// answer: see [`Node::transfer`]. Returns the node that leads now.
    ///
    /// # Errors
    /// As [`Node::transfer`]; [`NodeError::Membership`] if no other voter answers, or there is
    /// none.
    pub async fn resign(&self, patience: Duration) -> Result<u64, NodeError> {
        let progress = ChangeProgress::new(patience);
        // A refusal is final, and only a proven leader knows whether there is another voter.
        self.prove_until(&progress).await?;
        let status = self.status();
        if status.voters == [status.node] {
            return Err(NodeError::Membership("there is no other voter".into()));
        }
        let age_max = self.silence_max();
        let answering = |status: &Status| -> Vec<u64> {
            let others = status.voters.iter().copied().filter(|voter| *voter != status.node);
            others.filter(|voter| status.has_heard(*voter, age_max)).collect()
        };
        let status = self
            .wait_for(progress.remaining().min(age_max), |status| !answering(status).is_empty())
            .await;
        let mut targets = status.as_ref().map(answering).unwrap_or_default();
        let matched = status.map(|status| status.matched).unwrap_or_default();
        targets.sort_by_key(|voter| Reverse(matched.get(voter).copied().flatten()));
        let mut given = Err(NodeError::Membership("no other voter answers".into()));
        for target in targets {
            given = self.transfer(target, progress.remaining()).await.map(|()| target);
            if !matches!(given, Err(NodeError::Membership(_))) {
                break;
            }
        }
        given
    }
}
