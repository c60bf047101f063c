//! Ending joint configurations that a leader left.
//!
//! A change of the voters has two steps: a joint configuration, in which both majorities are
//! needed, and the new one alone. A leader that is deposed between them leaves the first. Until it
//! ends, the cluster survives less than it should: of two voters that become three, both have to be
//! there.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{ChangeMembers, ServerState};
use tokio::sync::Mutex;

use crate::node::error::NodeError;
use crate::node::replica::Core;

/// A node that loses its vote leaves the cluster. An earlier leader may have left a joint
/// configuration, which any change ends: one that retained the node would make it a learner for
/// good.
pub(crate) const RETAIN: bool = false;

/// Ends each joint configuration that this node finds as the leader, until the node stops.
/// `changes` is held by the changes that this node makes: they end their own.
pub(crate) async fn end_joint_configurations(raft: Core, changes: Arc<Mutex<()>>) {
    // They change with the vote, the role and the members, not with each heartbeat.
    let mut metrics = raft.server_metrics();
    loop {
        if is_left(&raft).await {
            let _turn = changes.lock().await;
            end_joint_configuration(&raft).await;
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

/// Ends the joint configuration that there is, if there is one, while this node leads. The caller
/// has the turn.
pub(crate) async fn end_joint_configuration(raft: &Core) {
    while is_left(raft).await {
        match end(raft).await {
            Ok(()) => return,
            // It is not committed yet, or never will be in this term.
            Err(error) => {
                tracing::debug!(%error, "a joint configuration is not ended yet");
                let pause = Duration::from_millis(raft.config().election_timeout_min);
                tokio::time::sleep(pause).await;
            }
        }
    }
}

async fn end(raft: &Core) -> Result<(), NodeError> {
    let nothing = ChangeMembers::AddVoterIds([].into());
    let ended = raft.change_membership(nothing, RETAIN).await?;
    let voters: Option<Vec<_>> = ended.membership().as_ref().map(|all| all.voter_ids().collect());
    let node = *raft.node_id();
    tracing::info!(node, ?voters, "a change of the voters that was left is complete");
    Ok(())
}

/// Whether this node leads in a joint configuration, committed or not.
pub(crate) async fn is_left(raft: &Core) -> bool {
    let is_left = raft.with_raft_state(|state| {
        let members = state.membership_state.effective();
        state.server_state == ServerState::Leader && members.get_joint_config().len() > 1
    });
    is_left.await.unwrap_or(false)
}
