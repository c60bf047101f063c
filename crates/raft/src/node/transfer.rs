//! Transfer of leadership to another node.

use std::cmp::Reverse;
use std::time::Duration;

use tokio::time::Instant;

use crate::node::change::ChangeProgress;
use crate::node::error::NodeError;
use crate::node::start::Node;
use crate::node::status::Status;

/// The most entries that the target of a transfer may lack while this leader still takes proposals,
/// and that a node may lack that gets a vote.
pub(crate) const CATCH_UP_LAG_ENTRIES: u64 = 64;

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
        let turn = tokio::time::timeout(progress.remaining(), self.transfers.lock()).await;
        let is_made = |_| NodeError::NotProposed("another transfer of leadership is made".into());
        let _turn = turn.map_err(is_made)?;
        let term = loop {
            match self.try_transfer(target, &progress).await {
                Ok(term) => break term,
                Err(error) => progress.retry_after(error, self.silence_max()).await?,
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
        let mut resignation = self.resigned.begin(term);
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
        // In this term nothing is served. In a later one this node may lead again.
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
            let leader = self.leader_contact.wait_for_term_above(term).await;
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
    /// Those of [`Node::transfer`]; [`NodeError::Membership`] if no other voter answers, or there
    /// is none.
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

    /// The longest election timeout, for which a voter that acknowledged this leader gives no vote.
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.raft.config().election_timeout_max)
    }

    /// The time for which a node that runs may be silent: three leases.
    pub(crate) fn silence_max(&self) -> Duration {
        self.lease() * 3
    }

    /// Waits until the target acknowledges a message that this leader sends from now on: earlier
    /// acknowledgements may be from before it stopped.
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

    /// Waits until the target has acknowledged an entry, and lacks `lag` entries at most.
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

    /// Waits until the status of this leader is as wanted, while it leads in this term.
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
