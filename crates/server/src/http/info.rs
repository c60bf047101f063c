//! What a node says of itself and of its cluster.

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use crate::http::answer::{self, Answer};
use crate::http::metrics as exposition;
use crate::shared::Shared;

/// `GET /up`: the process answers.
pub(crate) fn up() -> Answer {
    answer::text(StatusCode::OK, "ok")
}

/// `GET /ready`: the node could serve now, or say who does.
pub(crate) fn ready(shared: &Shared) -> Answer {
    let status = shared.node.status();
    // A leader that no quorum answers is none. One that votes alone asks no other node.
    let asks = status.leads() && status.voters.len() > 1;
    let is_stale = asks && status.quorum_age.is_none_or(|age| age > shared.lease);
    match status.leader.filter(|_| !is_stale) {
        Some(leader) => {
            let node = status.node;
            let body = format!("leader={leader} nodeID={node} raftAvailable=true\n");
            answer::text(StatusCode::OK, body)
        }
        None => answer::text(StatusCode::INTERNAL_SERVER_ERROR, "raft leadership not ready"),
    }
}

/// `GET /members` and `/membership`.
pub(crate) fn members(shared: &Shared, id: u64) -> Answer {
    answer::json(id, &shared.members())
}

/// `GET /status`.
pub(crate) fn status(shared: &Shared, id: u64) -> Answer {
    answer::json(id, &shared.status())
}

/// `GET /clock`.
pub(crate) fn clock(shared: &Shared, id: u64) -> Answer {
    answer::json(id, &shared.clock())
}

/// `GET /metrics`, for Prometheus.
pub(crate) fn metrics(shared: &Shared, id: u64) -> Answer {
    const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match exposition::encode(shared) {
        Ok(body) => {
            let mut answer = answer::text(StatusCode::OK, body);
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
            answer
        }
        Err(error) => answer::failed(id, &error),
    }
}
