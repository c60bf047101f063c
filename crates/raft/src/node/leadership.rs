//! Proposing commands, and proving leadership.

use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{ReadPolicy, ServerState};

use crate::node::Node;
use crate::node::commands::Command;
use crate::node::error::NodeError;

impl Node {
    /// Replicates a command, and returns the state machine's answer to it. While 4,096 proposals or
    /// 4 MiB of them are not resolved, waits for room.
    ///
    /// # Durability
    /// When this returns, a quorum has the command durable, and this node has applied it.
    ///
    /// # Cancel safety
    /// A command that was proposed stays so when the future is dropped.
    ///
    /// # Errors
    /// [`NodeError::TimedOut`] after `patience`, [`NodeError::Unknown`], [`NodeError::Stopped`] and
    /// [`NodeError::Internal`] say nothing about the command. At any other error it was not
    /// proposed: see [`NodeError::may_still_happen`].
    pub async fn propose(&self, command: Command, patience: Duration) -> Result<Bytes, NodeError> {
        let len = command.0.len();
        if len > Command::MAX {
            return Err(NodeError::TooLong { len });
        }
        let proposed = async {
            // A transfer that begins after this holds all permits until openraft refuses proposals.
            self.leads_in().map_or(Ok(()), |term| self.check_not_resigned(term))?;
            let permit = self.permits.acquire(len).await.map_err(|error| self.fail(error))?;
            let raft = self.raft.clone();
            // A caller that gives up leaves its permit to the command.
            let written = tokio::spawn(async move {
                let written = raft.client_write(command).await;
                drop(permit);
                written
            });
            let written = written.await.map_err(|_| NodeError::Unknown)?;
            Ok(written.map_err(NodeError::from)?.data)
        };
        let proposed = tokio::time::timeout(patience, proposed).await;
        proposed.unwrap_or(Err(NodeError::TimedOut)).map_err(|error| self.or_invariant(error))
    }

    /// Makes a read of the state machine linearizable: proves that this node led after this call
    /// began, and waits until it has applied what was committed before. Returns the term, in which
    /// the node may act for requests that came before the call.
    ///
    /// Sends one message to each node, whatever the number of requests that wait for the proof.
    ///
    /// # Errors
    /// [`NodeError::TimedOut`] after `patience`; [`NodeError::LeadershipTransfer`] from the moment
    /// at which a transfer begins, for the rest of the term.
    pub async fn ensure_linearizable(&self, patience: Duration) -> Result<u64, NodeError> {
        if self.leads_in().is_none() || self.successor().is_some() {
            return Err(self.not_leader());
        }
        let proof = self.raft.ensure_linearizable(ReadPolicy::ReadIndex);
        let read = tokio::time::timeout(patience, proof).await;
        let read = read.map_err(|_| NodeError::TimedOut)?;
        let read = read.map_err(|error| self.or_invariant(error.into()))?;
        // The term that was proven. The metrics may be of an earlier term.
        let term = read.log_id().leader_id.term;
        self.check_not_resigned(term)?;
        Ok(term)
    }

    /// The term in which this node leads, as far as it knows.
    pub(crate) fn leads_in(&self) -> Option<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        (metrics.state == ServerState::Leader).then_some(metrics.current_term)
    }

    /// The error for a caller of a node that does not lead, with the leader that the node knows.
    pub(crate) fn not_leader(&self) -> NodeError {
        let status = self.status();
        let leader = status.leader.filter(|leader| *leader != status.node);
        let leader = leader.and_then(|id| Some((id, status.members.get(&id)?.clone())));
        NodeError::NotLeader { leader }
    }

    /// Fails in a term in which this node gives its leadership up.
    pub(crate) fn check_not_resigned(&self, term: u64) -> Result<(), NodeError> {
        match self.leadership.resigned.covers(term) {
            true => Err(self.or_successor(NodeError::LeadershipTransfer)),
            false => Ok(()),
        }
    }

    /// Names the leader of a later term, if this node has heard of one; otherwise returns `error`.
    pub(crate) fn or_successor(&self, error: NodeError) -> NodeError {
        match self.successor() {
            Some(_) => self.not_leader(),
            None => error,
        }
    }
}
