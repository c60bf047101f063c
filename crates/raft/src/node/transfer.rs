//! Giving leadership to another node.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tokio::time::Instant;

use crate::node::bounds::PROPOSALS;
use crate::node::error::NodeError;
use crate::node::start::Node;

/// Entries that the target of a transfer may lack while this leader still takes proposals, and a
/// node that gets a vote.
pub(crate) const LAG: u64 = 64;

/// While this is there, the node takes no proposals and proves no leadership. It gives both back,
/// unless the target was asked to lead.
struct Resignation<'a> {
    resigned: &'a AtomicU64,
    before: u64,
    is_final: bool,
}

impl<'a> Resignation<'a> {
    fn begin(resigned: &'a AtomicU64, term: u64) -> Self {
        let before = resigned.swap(term.saturating_add(1), SeqCst);
        Self { resigned, before, is_final: false }
    }
}

impl Drop for Resignation<'_> {
    fn drop(&mut self) {
        if !self.is_final {
            self.resigned.store(self.before, SeqCst);
        }
    }
}

impl Node {
    /// Gives leadership to a voter, and returns when that leads. Transfers take turns.
    ///
    /// Waits first until the target has almost all entries, and has acknowledged a message that was
    /// sent after that. Then this node takes no proposal and
    /// proves no leadership for the rest of its term, and waits until the target has all of them:
    /// one that lacks an entry ignores the request.
    ///
    /// # Cancel safety
    /// A future that is dropped before the target was asked changes nothing. After that this node
    /// does not lead again in its term; if the target was not elected, the cluster elects a leader
    /// after an election timeout.
    ///
    /// # Errors
    /// Those of [`Node::prove_leadership`]; [`NodeError::Membership`] for a target that is no other
    /// voter, or does not answer; [`NodeError::TimedOut`] after `patience`. Unless the target was
    /// asked, this node stays the leader, and serves again after three leases at most.
    pub async fn transfer(&self, target: u64, patience: Duration) -> Result<(), NodeError> {
        let deadline = Instant::now() + patience;
        let remaining = || deadline.saturating_duration_since(Instant::now());
        let turn = tokio::time::timeout(remaining(), self.transfers.lock()).await;
        let _turn = turn.map_err(|_| NodeError::TimedOut)?;
        let term = self.prove_leadership(remaining()).await?;
        let status = self.status();
        if target == status.node || !status.voters.contains(&target) {
            return Err(NodeError::Membership(format!("node {target} is not another voter")));
        }
        self.catch_up(target, term, LAG, remaining()).await?;
        self.hear_from(target, term, remaining()).await?;
        // From here on nothing is served. A target that stops now does not keep it so.
        let (given_up, deadline) = (deadline, deadline.min(Instant::now() + self.lately()));
        let remaining = || deadline.saturating_duration_since(Instant::now());
        let mut resignation = Resignation::begin(&self.resigned, term);
        // All permits: what was proposed before is resolved, and what comes is refused.
        let all = u32::try_from(PROPOSALS).unwrap_or(u32::MAX);
        let resolved = tokio::time::timeout(remaining(), self.proposals.acquire_many(all)).await;
        let all = resolved.map_err(|_| NodeError::TimedOut)?;
        self.catch_up(target, term, 0, remaining()).await?;
        resignation.is_final = true;
        // If the caller gives up, openraft is still asked: otherwise this node would lead and serve
        // nothing.
        let raft = self.raft.clone();
        let asked = tokio::spawn(async move { raft.trigger().transfer_leader(target).await });
        asked.await.map_err(|_| NodeError::Unknown)??;
        // In this term nothing is served. In a later one this node may lead again.
        drop(all);
        let led = self.wait_for(given_up.saturating_duration_since(Instant::now()), |status| {
            status.term > term && status.leader.is_some()
        });
        match led.await.and_then(|status| status.leader) {
            Some(leader) if leader == target => Ok(()),
            Some(leader) => Err(NodeError::Membership(format!(
                "node {target} was asked to lead, and node {leader} was elected"
            ))),
            None => Err(NodeError::TimedOut),
        }
    }

    /// Gives leadership to the voter that has most entries, and to another one if that does not
    /// answer: see [`Node::transfer`]. Returns the node that leads now.
    ///
    /// # Errors
    /// Those of [`Node::transfer`]; [`NodeError::Membership`] if no other voter answers, or there
    /// is none.
    pub async fn resign(&self, patience: Duration) -> Result<u64, NodeError> {
        let status = self.status();
        if !status.leads() {
            return Err(self.not_leader());
        }
        if status.voters == [status.node] {
            return Err(NodeError::Membership("there is no other voter".into()));
        }
        let others = status.voters.iter().copied().filter(|voter| *voter != status.node);
        let others = others.filter(|voter| status.has_heard(*voter, self.lately()));
        let mut targets: Vec<_> = others.collect();
        targets.sort_by_key(|voter| Reverse(status.matched.get(voter).copied().flatten()));
        let deadline = Instant::now() + patience;
        let mut given = Err(NodeError::Membership("no other voter answers".into()));
        for target in targets {
            let remaining = deadline.saturating_duration_since(Instant::now());
            given = self.transfer(target, remaining).await.map(|()| target);
            if !matches!(given, Err(NodeError::Membership(_))) {
                break;
            }
        }
        given
    }

    /// For how long a node that is there may be silent: three leases.
    pub(crate) fn lately(&self) -> Duration {
        Duration::from_millis(self.raft.config().election_timeout_max) * 3
    }

    /// Waits until the target acknowledges what this leader sends from now on: what it has may be
    /// known from before it stopped. Three leases at most.
    async fn hear_from(&self, target: u64, term: u64, patience: Duration) -> Result<(), NodeError> {
        let since = Instant::now();
        let heard = self.wait_for(patience.min(self.lately()), |status| {
            !status.leads() || status.term != term || status.has_heard(target, since.elapsed())
        });
        match heard.await {
            Some(status) if status.leads() && status.term == term => Ok(()),
            Some(_) => Err(NodeError::NotLeader { leader: None }),
            None => Err(NodeError::Membership(format!("node {target} does not answer"))),
        }
    }

    /// Waits until the target lacks so many entries at most.
    pub(crate) async fn catch_up(
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
