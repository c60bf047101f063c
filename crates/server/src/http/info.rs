//! Answers about the node and its cluster.

use hyper::StatusCode;

use crate::call::PROBE_ANSWER;
use crate::http::answer::{self, Answer};
use crate::http::client_connection::ClientConnection;
use crate::node_state::NodeState;
use crate::protocol::FoundingStatus;

/// Answers `GET /up`: the process runs.
pub(crate) fn up() -> Answer {
    answer::text(StatusCode::OK, PROBE_ANSWER)
}

/// Answers `GET /ready`: whether the node serves, or knows which node does. A node that was removed
/// is not ready, nor one that can issue no timestamp until an operator acts.
pub(crate) fn ready(state: &NodeState) -> Answer {
    if state.is_removed() {
        let why = "this node was removed from the cluster; stop it";
        return answer::text(StatusCode::INTERNAL_SERVER_ERROR, why);
    }
    if let Some(why) = state.oracle().blocked() {
        return answer::text(StatusCode::INTERNAL_SERVER_ERROR, why.to_string());
    }
    let status = state.node().status();
    match status.leader {
        Some(leader) => {
            let node = status.node;
            let body = format!("leader={leader} nodeID={node} raftAvailable=true\n");
            answer::text(StatusCode::OK, body)
        }
        None => answer::text(StatusCode::INTERNAL_SERVER_ERROR, "raft leadership not ready"),
    }
}

/// Answers `GET /members` and `/membership`.
pub(crate) async fn members(state: &NodeState, client: &ClientConnection) -> Answer {
    answer::json(client, &state.members()).await
}

/// Answers `GET /status`.
pub(crate) async fn status(state: &NodeState, client: &ClientConnection) -> Answer {
    answer::json(client, &state.status()).await
}

/// Answers `GET /clock`.
pub(crate) async fn clock(state: &NodeState, client: &ClientConnection) -> Answer {
    answer::json(client, &state.clock()).await
}

/// Answers `GET /founding`.
pub(crate) fn founding(state: &NodeState) -> Answer {
    let (node, cluster) = (state.identity().node, state.identity().cluster.to_string());
    let is_founded = !state.node().status().members.is_empty();
    let status = FoundingStatus { node, cluster, nodes: Vec::new(), is_founded };
    match status.encode() {
        Ok(body) => answer::short_json(body),
        Err(broken) => answer::internal(state.failures(), broken),
    }
}
