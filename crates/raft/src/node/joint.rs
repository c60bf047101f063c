//! The end of joint configurations that a leader left.
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
use crate::node::replica::NodeRaft;

/// The fate of a node that loses its vote: it does not stay a member. An earlier leader may have
/// left a joint configuration, which any change ends, and a change that retained the node would
/// make it a learner for good.
pub(crate) const RETAIN_REMOVED_VOTERS: bool = false;

/// Ends each joint configuration that this node leads, until the node stops. Changes that this node
/// makes hold `changes`, and end their own.
pub(crate) async fn end_joint_configurations(raft: NodeRaft, changes: Arc<Mutex<()>>) {
    // They change with the vote, the role and the members, not with each heartbeat.
    let mut metrics = raft.server_metrics();
    loop {
        if leads_joint_configuration(&raft).await {
            let _turn = changes.lock().await;
            end_joint_configuration(&raft).await;
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

/// Ends the joint configuration, if there is one, while this node leads. The caller has the turn.
pub(crate) async fn end_joint_configuration(raft: &NodeRaft) {
    while leads_joint_configuration(raft).await {
        match propose_end(raft).await {
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

async fn propose_end(raft: &NodeRaft) -> Result<(), NodeError> {
    let nothing = ChangeMembers::AddVoterIds([].into());
    let ended = raft.change_membership(nothing, RETAIN_REMOVED_VOTERS).await?;
    let voters: Option<Vec<_>> = ended.membership().as_ref().map(|all| all.voter_ids().collect());
    let node = *raft.node_id();
    tracing::info!(node, ?voters, "a change of the voters that was left is complete");
    Ok(())
}

/// Returns whether this node leads in a joint configuration, committed or not.
pub(crate) async fn leads_joint_configuration(raft: &NodeRaft) -> bool {
    let leads_joint = raft.with_raft_state(|state| {
        let members = state.membership_state.effective();
        state.server_state == ServerState::Leader && members.get_joint_config().len() > 1
    });
    // It fails when the node has stopped, and then leads nothing.
    leads_joint.await.unwrap_or(false)
}
