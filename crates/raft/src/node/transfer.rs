//! Giving leadership to another node.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::machine::Machine;
use crate::node::bounds::PROPOSALS;
use crate::node::commands::Commands;
use crate::node::error::NodeError;
use crate::node::start::Node;

/// Entries that the target may lack while this leader still takes proposals.
const LAG: u64 = 64;

impl<M: Machine<Commands>> Node<M> {
    /// Gives leadership to a voter, and returns when that leads.
    ///
    /// Waits first until the target has almost all entries. Then this node takes no proposal and
    /// proves no leadership for the rest of its term, and waits until the target has all of them:
    /// one that lacks an entry ignores the request.
    ///
    /// # Errors
    /// [`NodeError::NotLeader`]; [`NodeError::Membership`] for a target that is no other voter;
    /// [`NodeError::TimedOut`] after `patience`. Unless the target got the request, this node
    /// leads on.
    ///
    /// # Cancel safety
    /// A future that is dropped may leave this node without a leadership that it can use. The
    /// cluster elects a leader after an election timeout.
    pub async fn transfer(&self, target: u64, patience: Duration) -> Result<(), NodeError> {
        let deadline = tokio::time::Instant::now() + patience;
        let left = || deadline.saturating_duration_since(tokio::time::Instant::now());
        let status = self.status();
        if !status.leads() {
            return Err(NodeError::NotLeader { leader: None });
        }
        if target == status.node || !status.voters.contains(&target) {
            return Err(NodeError::Membership(format!("node {target} is no other voter")));
        }
        let term = status.term;
        self.catch_up(target, term, LAG, left()).await?;
        let before = self.left.swap(term.saturating_add(1), SeqCst);
        // All permits: what was proposed before is resolved, and what comes is refused.
        let all = u32::try_from(PROPOSALS).unwrap_or(u32::MAX);
        let resolved = tokio::time::timeout(left(), self.proposals.acquire_many(all)).await;
        let matched = match &resolved {
            Ok(_) => self.catch_up(target, term, 0, left()).await,
            Err(_) => Err(NodeError::TimedOut),
        };
        if let Err(error) = matched {
            // The target was not asked: this leader stays.
            self.left.store(before, SeqCst);
            return Err(error);
        }
        self.raft.trigger().transfer_leader(target).await?;
        let led = self.wait_for(left(), |status| {
            status.term > term && status.leader.is_some_and(|leader| leader != status.node)
        });
        match led.await {
            Some(status) if status.leader == Some(target) => Ok(()),
            Some(_) => Err(NodeError::Membership("another node was elected".into())),
            None => Err(NodeError::TimedOut),
        }
    }

    /// Waits until the target lacks so many entries at most.
    async fn catch_up(
        &self,
        target: u64,
        term: u64,
        lag: u64,
        patience: Duration,
    ) -> Result<(), NodeError> {
        let caught_up = self.wait_for(patience, |status| {
            let matched = status.matched.get(&target).copied().flatten();
            let has = matched.map_or(0, |index| index + 1);
            let all = status.last.map_or(0, |index| index + 1);
            !status.leads() || status.term != term || all - has.min(all) <= lag
        });
        match caught_up.await {
            Some(status) if status.leads() && status.term == term => Ok(()),
            Some(_) => Err(NodeError::NotLeader { leader: None }),
            None => Err(NodeError::TimedOut),
        }
    }
}
