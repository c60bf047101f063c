//! Changes of the cluster: `POST /cluster/...`. Only the leader makes them.
//!
//! Each request names the cluster, so that none changes another one. A browser cannot send one for
//! a page of another origin: such requests have another `Origin`, or no JSON.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use esker_oracle::Step;
use esker_raft::Member;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Request, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::call::is_address;
use crate::http::answer::{self, Answer};
use crate::http::client_connection::ConnectionState;
use crate::http::refusal::{
    ChangeResult, Refusal, change_denial, log_refusal, nothing_changed_by, refuse_removed_node,
    removed, unprocessable, was_removed,
};
use crate::memory_budget::{BudgetExhausted, Permit, REQUEST_BODY_BYTES_MAX};
use crate::node_state::{CHANGE_TIMEOUT, NodeState};
use crate::protocol::{
    AddNodeRequest, AdmitNodeRequest, FollowClockRequest, FollowClockResponse, RemoveNodeRequest,
    TransferRequest, TransferResponse,
};
use crate::tls::ClientRole;

/// The longest body of a request.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;
/// The time that the body of a request may take.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(5);

const _: () = assert!(BODY_BYTES_MAX <= REQUEST_BODY_BYTES_MAX, "each change has memory");

/// A change of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClusterChange {
    /// Checks whether a new node may have a number.
    Admit,
    Add,
    Remove,
    Transfer,
    /// Lets epochs follow the leader's clock at once.
    FollowClock,
}

/// Makes a change, and answers.
pub(crate) async fn change<B>(
    connection: &ConnectionState,
    id: u64,
    change: ClusterChange,
    request: Request<B>,
) -> Answer
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (state, client) = (connection.node(), connection.client());
    let (head, body) = request.into_parts();
    // Before its body costs memory.
    if let Some(denied) = deny(connection, &head) {
        skip_body(body).await;
        return denied;
    }
    let role = connection.access().role;
    let changed = match client.permit_body(BODY_BYTES_MAX as u32).await {
        Ok(permit) => try_change(state, id, (change, role), body, permit).await,
        Err(BudgetExhausted) => Err(Refusal::Busy),
    };
    match changed {
        Ok(made) => answer::json(client, &made).await,
        Err(refusal) => refusal.answer(state.node().id()),
    }
}

/// Makes a change, whose body holds the permit to the end.
async fn try_change<B>(
    state: &NodeState,
    id: u64,
    (change, role): (ClusterChange, ClientRole),
    body: B,
    mut permit: Permit,
) -> ChangeResult<Value>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    permit.wait_for_client(true);
    let body = Limited::new(body, BODY_BYTES_MAX).collect();
    let body = match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => {
            return Err(Refusal::Status(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()));
        }
        Err(_) => {
            let why = "the body did not come in time".into();
            return Err(Refusal::Status(StatusCode::REQUEST_TIMEOUT, why));
        }
    };
    debug_assert!(body.len() <= permit.bytes(), "the body has memory");
    permit.wait_for_client(false);
    refuse_removed_node(state, role).await?;
    match change {
        ClusterChange::Admit => admit(state, &body).await?,
        ClusterChange::Add => add(state, id, &body).await?,
        ClusterChange::Remove => remove(state, id, &body).await?,
        ClusterChange::Transfer => {
            let node = transfer(state, id, &body).await?;
            return Ok(serde_json::json!(TransferResponse { node }));
        }
        ClusterChange::FollowClock => {
            let epoch = follow_clock(state, id, &body).await?;
            return Ok(serde_json::json!(FollowClockResponse { epoch }));
        }
    }
    Ok(serde_json::json!({}))
}

/// Returns the answer to a caller that may not change the cluster; `None` to one that may.
fn deny(connection: &ConnectionState, head: &Parts) -> Option<Answer> {
    change_denial(connection, &head.uri, &head.headers).or_else(|| {
        let checked = check_content_type(&head.headers);
        checked.err().map(|refusal| refusal.answer(connection.node().node().id()))
    })
}

/// Receives the body of a request whose answer does not depend on it, also if it does not end. Over
/// HTTP/2 a client that gets its answer before it has sent the body may take that for a failure.
pub(crate) async fn skip_body<B>(body: B)
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = pin!(Limited::new(body, BODY_BYTES_MAX));
    let skipped = async { while let Some(Ok(_)) = body.frame().await {} };
    drop(tokio::time::timeout(BODY_TIMEOUT, skipped).await);
}

fn check_content_type(headers: &HeaderMap) -> ChangeResult {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    match kind.is_some_and(|kind| kind.starts_with("application/json")) {
        true => Ok(()),
        false => {
            let why = "the body is JSON: Content-Type: application/json".into();
            Err(Refusal::Status(StatusCode::UNSUPPORTED_MEDIA_TYPE, why))
        }
    }
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> ChangeResult<T> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::Status(StatusCode::BAD_REQUEST, error.to_string()))
}

fn check_cluster(state: &NodeState, cluster: &str) -> ChangeResult {
    let ours = state.identity().cluster.to_string();
    match cluster == ours {
        true => Ok(()),
        false => Err(unprocessable(format!("this is the cluster {ours}, not {cluster}"))),
    }
}

async fn admit(state: &NodeState, body: &Bytes) -> ChangeResult {
    let AdmitNodeRequest { cluster, node } = parse(body)?;
    check_cluster(state, &cluster)?;
    match state.node().member(node, CHANGE_TIMEOUT).await.map_err(nothing_changed_by)? {
        None if was_removed(state, node).await? => Err(removed(node)),
        None => Ok(()),
        Some(_) => Err(unprocessable(format!(
            "the cluster has a node {node}; a node that lost its data needs a new number"
        ))),
    }
}

async fn add(state: &NodeState, id: u64, body: &Bytes) -> ChangeResult {
    let request: AddNodeRequest = parse(body)?;
    let (node, addr, raft) = (request.node, request.addr.clone(), request.raft.clone());
    let before = state.node().status().members.remove(&node);
    let moved = before.is_some_and(|before| before.client != addr || before.raft != raft);
    let done = try_add(state, request).await;
    match &done {
        Ok(()) if moved => tracing::info!(id, node, addr, raft, "changed the address of a node"),
        Ok(()) => tracing::info!(id, node, addr, raft, "added a node"),
        Err(why) => log_refusal(state, id, "add a node", Some(node), why),
    }
    done
}

async fn try_add(state: &NodeState, request: AddNodeRequest) -> ChangeResult {
    let AddNodeRequest { cluster, node, addr, raft, store, joins } = request;
    check_cluster(state, &cluster)?;
    let invalid = |why: &str| Refusal::Status(StatusCode::BAD_REQUEST, why.into());
    if node == 0 {
        return Err(invalid("a node's number is 1 or more"));
    }
    for address in [&addr, &raft] {
        if !is_address(address) {
            return Err(invalid(&format!("{address:?} is not the host:port of one host")));
        }
    }
    // A refusal is final, so only the leader refuses.
    let known = state.node().member(node, CHANGE_TIMEOUT).await?;
    let others = state.node().status().members;
    let mut others = others.iter().filter(|(other, _)| **other != node);
    let other = others.find(|(_, other)| other.client == addr || other.raft == raft);
    if let Some((other, _)) = other {
        return Err(unprocessable(format!(
            "node {other} is at this address; if it is gone, remove it: \
             `esker cluster remove --node-id {other}`"
        )));
    }
    let store = store.map(|store| u128::from_str_radix(&store, 16)).transpose();
    let store = store.map_err(|_| invalid("the store has 32 hexadecimal digits"))?;
    let store = match (known, store) {
        (None, Some(store)) if joins => store,
        (None, _) => {
            return Err(unprocessable(format!(
                "node {node} is no member, or no longer: a new one joins with --join, and a number \
                 that was removed is not used again"
            )));
        }
        (Some(_), Some(store)) => store,
        (Some(known), None) => known.store,
    };
    let member = Member { raft, client: addr, store, removed: Vec::new() };
    Ok(state.node().add(node, member, CHANGE_TIMEOUT).await?)
}

async fn remove(state: &NodeState, id: u64, body: &Bytes) -> ChangeResult {
    let RemoveNodeRequest { cluster, node } = parse(body)?;
    let done = async {
        check_cluster(state, &cluster)?;
        Ok::<(), Refusal>(state.node().remove(node, CHANGE_TIMEOUT).await?)
    };
    let done = done.await;
    match &done {
        Ok(()) => tracing::info!(id, node, "removed a node"),
        Err(why) => log_refusal(state, id, "remove a node", Some(node), why),
    }
    done
}

async fn transfer(state: &NodeState, id: u64, body: &Bytes) -> ChangeResult<u64> {
    let TransferRequest { cluster, node } = parse(body)?;
    // The leader is asked, and leads already.
    let leads_already = node == Some(state.node().id());
    let done = async {
        check_cluster(state, &cluster)?;
        match node {
            Some(node) if leads_already => {
                state.node().ensure_linearizable(CHANGE_TIMEOUT).await?;
                Ok(node)
            }
            Some(node) => {
                state.node().transfer(node, CHANGE_TIMEOUT).await?;
                Ok(node)
            }
            None => Ok(state.node().resign(CHANGE_TIMEOUT).await?),
        }
    };
    let done: ChangeResult<u64> = done.await;
    match &done {
        Ok(_) if leads_already => {}
        Ok(node) => tracing::info!(id, node, "gave leadership away"),
        Err(why) => log_refusal(state, id, "give leadership away", node, why),
    }
    done
}

async fn follow_clock(state: &NodeState, id: u64, body: &Bytes) -> ChangeResult<u64> {
    let FollowClockRequest { cluster } = parse(body)?;
    let done = async {
        check_cluster(state, &cluster)?;
        let epoch = state.oracle().follow_clock().await?;
        match state.oracle().clock().step {
            Step::Backward(by) => Err(unprocessable(format!(
                "the clock is {:.1} s behind the epoch, which cannot go back",
                by.as_secs_f64()
            ))),
            Step::None | Step::Forward(_) => Ok(epoch),
        }
    };
    let done: ChangeResult<u64> = done.await;
    match &done {
        Ok(epoch) => tracing::info!(id, epoch, "epochs follow the clock at once"),
        Err(why) => log_refusal(state, id, "follow the clock", None, why),
    }
    done
}
