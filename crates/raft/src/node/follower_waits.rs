//! Waits of a leader for its followers: until one answers, and until it has the entries.

use std::time::Duration;

use tokio::time::Instant;

use crate::node::Node;
use crate::node::error::NodeError;
use crate::node::status::Status;

/// The most entries that the target of a transfer may lack while this leader still takes proposals,
/// and that a node may lack that gets a vote.
pub(super) const CATCH_UP_LAG_ENTRIES: u64 = 64;

impl Node {
    /// Waits until the target acknowledges a message that this leader sends from now on: earlier
    /// acknowledgements may be from before it stopped.
    pub(super) async fn hear_from(
        &self,
        target: u64,
        term: u64,
        patience: Duration,
    ) -> Result<(), NodeError> {
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
    pub(super) async fn catch_up(
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
    pub(super) async fn wait_as_leader(
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
