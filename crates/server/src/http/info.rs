//! What a node says of itself and of its cluster.

use std::sync::atomic::Ordering::Relaxed;

use hyper::StatusCode;

use crate::http::answer::{self, Answer};
use crate::http::client::Client;
use crate::protocol::FoundingStatus;
use crate::shared::Shared;

/// `GET /up`: the process answers.
pub(crate) fn up() -> Answer {
    answer::text(StatusCode::OK, "ok")
}

/// `GET /ready`: the node could serve now, or say who does. Not one that was removed, nor one where
/// no timestamp can be issued until something is done.
pub(crate) fn ready(shared: &Shared) -> Answer {
    if shared.is_removed.load(Relaxed) {
        let why = "this node was removed from the cluster; stop it";
        return answer::text(StatusCode::INTERNAL_SERVER_ERROR, why);
    }
    if let Some(why) = shared.oracle.blocked() {
        return answer::text(StatusCode::INTERNAL_SERVER_ERROR, why.to_string());
    }
    let status = shared.node.status();
    match status.leader {
        Some(leader) => {
            let node = status.node;
            let body = format!("leader={leader} nodeID={node} raftAvailable=true\n");
            answer::text(StatusCode::OK, body)
        }
        None => answer::text(StatusCode::INTERNAL_SERVER_ERROR, "raft leadership not ready"),
    }
}

/// `GET /members` and `/membership`.
pub(crate) async fn members(shared: &Shared, client: &Client, id: u64) -> Answer {
    answer::json(client, id, &shared.members()).await
}

/// `GET /status`.
pub(crate) async fn status(shared: &Shared, client: &Client, id: u64) -> Answer {
    answer::json(client, id, &shared.status()).await
}

/// `GET /clock`.
pub(crate) async fn clock(shared: &Shared, client: &Client, id: u64) -> Answer {
    answer::json(client, id, &shared.clock()).await
}

/// `GET /founding`.
pub(crate) fn founding(shared: &Shared) -> Answer {
    let (node, cluster) = (shared.identity.node, shared.identity.cluster.to_string());
    let is_founded = !shared.node.status().members.is_empty();
    answer::founding(&FoundingStatus { node, cluster, nodes: Vec::new(), is_founded })
}
