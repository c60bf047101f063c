//! Giving leadership to another node.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tokio::time::Instant;

use crate::node::bounds::PROPOSALS;
use crate::node::change::ChangeProgress;
use crate::node::error::NodeError;
use crate::node::start::Node;
use crate::node::status::Status;

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
        let turn = tokio::time::timeout(progress.remaining(), self.transfers.lock()).await;
        let is_made = |_| NodeError::NotProposed("another transfer of leadership is made".into());
        let _turn = turn.map_err(is_made)?;
        let term = loop {
            match self.try_transfer(target, &progress).await {
                Ok(term) => break term,
                Err(error) => progress.retries(error, self.lately()).await?,
            }
        };
        self.until_led(target, term, progress.remaining()).await
    }

    /// Asks the target to lead. Returns the term that ends.
    async fn try_transfer(&self, target: u64, progress: &ChangeProgress) -> Result<u64, NodeError> {
        let remaining = || progress.remaining();
        let term = self.prove_until(progress).await?;
        let status = self.status();
        if target == status.node || !status.voters.contains(&target) {
            return Err(NodeError::Membership(format!("node {target} is not another voter")));
        }
        // One that does not answer is not waited for as long as one that lags.
        self.hear_from(target, term, progress.for_the_silent(self.lately())).await?;
        let heard = Instant::now();
        self.catch_up(target, term, LAG, remaining()).await?;
        if heard.elapsed() > self.lease() {
            self.hear_from(target, term, progress.for_the_silent(self.lately())).await?;
        }
        // From here on nothing is served. A target that stops now does not keep it so.
        let deadline = Instant::now() + remaining().min(self.lately());
        let remaining = || deadline.saturating_duration_since(Instant::now());
        let lacks = || NodeError::NotProposed(format!("node {target} lacks the last entries"));
        let mut resignation = Resignation::begin(&self.resigned, term);
        // All permits: what was proposed before is resolved, and what comes is refused.
        let all = u32::try_from(PROPOSALS).unwrap_or(u32::MAX);
        let resolved = tokio::time::timeout(remaining(), self.proposals.acquire_many(all)).await;
        let all = resolved.map_err(|_| lacks())?;
        match self.catch_up(target, term, 0, remaining()).await {
            Err(NodeError::TimedOut) => return Err(lacks()),
            caught_up => caught_up?,
        }
        resignation.is_final = true;
        progress.proposes();
        // If the caller gives up, openraft is still asked: otherwise this node would lead and serve
        // nothing.
        let raft = self.raft.clone();
        let asked = tokio::spawn(async move { raft.trigger().transfer_leader(target).await });
        let asked = async { Ok(asked.await.map_err(|_| NodeError::Unknown)??) };
        progress.within(asked).await?;
        // In this term nothing is served. In a later one this node may lead again.
        drop(all);
        Ok(term)
    }

    /// Waits until a node leads in a later term, which is the target if it was elected.
    async fn until_led(&self, target: u64, term: u64, patience: Duration) -> Result<(), NodeError> {
        let led = self.wait_for(patience, |status| status.term > term && status.leader.is_some());
        // openraft does not notice it while this node's disk stalls, and names it otherwise.
        let heard = async {
            let leader = self.heard.after(term).await;
            tokio::time::sleep(self.lease()).await;
            leader
        };
        let leader = tokio::select! {
            biased;
            led = led => led.and_then(|status| status.leader),
            leader = heard => Some(leader),
        };
        match leader {
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
        let progress = ChangeProgress::new(patience);
        // A refusal is final. Only a leader that is one knows whether there is another voter.
        self.prove_until(&progress).await?;
        let status = self.status();
        if status.voters == [status.node] {
            return Err(NodeError::Membership("there is no other voter".into()));
        }
        let lately = self.lately();
        let heard = |status: &Status| -> Vec<u64> {
            let others = status.voters.iter().copied().filter(|voter| *voter != status.node);
            others.filter(|voter| status.has_heard(*voter, lately)).collect()
        };
        let status = self
            .wait_for(progress.remaining().min(lately), |status| !heard(status).is_empty())
            .await;
        let mut targets = status.as_ref().map(heard).unwrap_or_default();
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

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.raft.config().election_timeout_max)
    }

    /// For how long a node that is there may be silent: three leases.
    pub(crate) fn lately(&self) -> Duration {
        self.lease() * 3
    }

    /// Waits until the target acknowledges what this leader sends from now on: what it has may be
    /// known from before it stopped.
    async fn hear_from(&self, target: u64, term: u64, patience: Duration) -> Result<(), NodeError> {
        let since = Instant::now();
        let has_heard = |status: &Status| status.has_heard(target, since.elapsed());
        match self.wait_as_leader(term, patience, has_heard).await {
            Err(NodeError::TimedOut) => {
                Err(NodeError::Membership(format!("node {target} does not answer")))
            }
            heard => heard,
        }
    }

    /// Waits until the target lacks so many entries at most, and has acknowledged one: what it has
    /// is not known before.
    pub(crate) async fn catch_up(
        &self,
        target: u64,
        term: u64,
        lag: u64,
        patience: Duration,
    ) -> Result<(), NodeError> {
        let is_near = |status: &Status| {
            let lacks = |has: u64| status.last.map_or(0, |last| last.saturating_sub(has));
            status.matched.get(&target).copied().flatten().is_some_and(|has| lacks(has) <= lag)
        };
        self.wait_as_leader(term, patience, is_near).await
    }

    /// Waits until a leader's knowledge is as wanted, while it leads in this term.
    ///
    /// # Errors
    /// [`NodeError::NotLeader`]; [`NodeError::TimedOut`] after `patience`.
    pub(crate) async fn wait_as_leader(
        &self,
        term: u64,
        patience: Duration,
        is_wanted: impl Fn(&Status) -> bool + Send + Sync,
    ) -> Result<(), NodeError> {
        let leads = |status: &Status| status.leads() && status.term == term;
        match self.wait_for(patience, |status| !leads(status) || is_wanted(status)).await {
            Some(status) if leads(&status) => Ok(()),
            Some(_) => Err(self.not_leader()),
            None => Err(NodeError::TimedOut),
        }
    }
}
