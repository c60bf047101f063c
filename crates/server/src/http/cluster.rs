//! `POST /cluster/...`: what changes the cluster. Only the leader does it.
//!
//! Each request names the cluster, so that none changes another one. A browser cannot send one for
//! a page of another origin: such requests have an `Origin`, or no JSON.

use std::time::Duration;

use bytes::Bytes;
use esker_oracle::{OracleError, Step};
use esker_raft::{Member, NodeError};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, HeaderMap, ORIGIN};
use hyper::{Request, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::call::is_address;
use crate::http::answer::{self, Answer};
use crate::http::client::Requests;
use crate::protocol::{AddNode, FollowClock, FollowedClock, RemoveNode, TransferTo, Transferred};
use crate::rooms::Room;
use crate::shared::{CHANGE, Shared};

pub(crate) const BODY_MAX: usize = 64 << 10;
/// How long the body of a request may take.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Whether a new node may have this number.
    Admit,
    Add,
    Remove,
    Transfer,
    /// Has epochs follow the leader's clock at once.
    FollowClock,
}

/// Why it was not done.
enum Refusal {
    /// There is no room for the body.
    Busy,
    Status(StatusCode, String),
    NotLeader {
        leader: u64,
        address: String,
    },
}

type Done<T = ()> = Result<T, Refusal>;

impl From<NodeError> for Refusal {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::NotLeader { leader: Some((leader, Member { client, .. })) } => {
                Self::NotLeader { leader, address: client }
            }
            NodeError::Membership(why) => refused(why),
            // The same request may succeed later.
            NodeError::NotProposed(_) => {
                Self::Status(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
            error => Self::Status(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

impl From<OracleError> for Refusal {
    fn from(error: OracleError) -> Self {
        match error {
            OracleError::NotLeader { leader } => NodeError::NotLeader { leader }.into(),
            OracleError::Unavailable(error) => error.into(),
            error @ OracleError::ClockTooHigh { .. } => refused(error.to_string()),
            error => Self::Status(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

impl Refusal {
    /// The answer of the node with this number.
    fn answer(self, own: u64) -> Answer {
        match self {
            Self::Busy => answer::busy(),
            Self::Status(StatusCode::SERVICE_UNAVAILABLE, why) => answer::unavailable(why),
            Self::Status(status, why) => answer::text(status, why),
            Self::NotLeader { leader, address } => answer::not_leader(own, leader, &address),
        }
    }
}

fn refused(why: impl Into<String>) -> Refusal {
    Refusal::Status(StatusCode::UNPROCESSABLE_ENTITY, why.into())
}

pub(crate) async fn change<B>(
    Requests { shared, client, .. }: &Requests,
    id: u64,
    change: Change,
    request: Request<B>,
) -> Answer
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let changed = match client.room_for_body(BODY_MAX as u32).await {
        Ok(room) => tried(shared, id, change, request, room).await,
        Err(_) => Err(Refusal::Busy),
    };
    match changed {
        Ok(said) => answer::json(client, id, &said).await,
        Err(refusal) => refusal.answer(shared.node.id()),
    }
}

/// Makes a change, whose body has this room to the end.
async fn tried<B>(
    shared: &Shared,
    id: u64,
    change: Change,
    request: Request<B>,
    mut room: Room,
) -> Done<Value>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    check(request.headers())?;
    room.wait_for_client(true);
    let body = Limited::new(request.into_body(), BODY_MAX).collect();
    let body = match tokio::time::timeout(BODY_TIME, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => {
            return Err(Refusal::Status(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()));
        }
        Err(_) => {
            let why = "the body did not come in time".into();
            return Err(Refusal::Status(StatusCode::REQUEST_TIMEOUT, why));
        }
    };
    room.wait_for_client(false);
    match change {
        Change::Admit => admit(shared, &body).await?,
        Change::Add => add(shared, id, &body).await?,
        Change::Remove => remove(shared, id, &body).await?,
        Change::Transfer => {
            let node = transfer(shared, id, &body).await?;
            return Ok(serde_json::json!(Transferred { node }));
        }
        Change::FollowClock => {
            let epoch = follow_clock(shared, id, &body).await?;
            return Ok(serde_json::json!(FollowedClock { epoch }));
        }
    }
    Ok(serde_json::json!({}))
}

fn check(headers: &HeaderMap) -> Done {
    if headers.contains_key(ORIGIN) {
        let why = "a page of a browser may not change the cluster".into();
        return Err(Refusal::Status(StatusCode::FORBIDDEN, why));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    match kind.is_some_and(|kind| kind.starts_with("application/json")) {
        true => Ok(()),
        false => {
            let why = "the body is JSON: Content-Type: application/json".into();
            Err(Refusal::Status(StatusCode::UNSUPPORTED_MEDIA_TYPE, why))
        }
    }
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Done<T> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::Status(StatusCode::BAD_REQUEST, error.to_string()))
}

fn of_this_cluster(shared: &Shared, cluster: &str) -> Done {
    let ours = shared.identity.cluster.to_string();
    match cluster == ours {
        true => Ok(()),
        false => Err(refused(format!("this is the cluster {ours}, not {cluster}"))),
    }
}

async fn admit(shared: &Shared, body: &Bytes) -> Done {
    let RemoveNode { cluster, node } = parse(body)?;
    of_this_cluster(shared, &cluster)?;
    match shared.node.member(node, CHANGE).await? {
        None if shared.node.was_removed(node, CHANGE).await? => Err(refused(format!(
            "node {node} was removed, and its number is not given again: take another one"
        ))),
        None => Ok(()),
        Some(_) => Err(refused(format!(
            "the cluster has a node {node}; a node that lost its data needs a new number"
        ))),
    }
}

async fn add(shared: &Shared, id: u64, body: &Bytes) -> Done {
    let wanted: AddNode = parse(body)?;
    let (node, addr, raft) = (wanted.node, wanted.addr.clone(), wanted.raft.clone());
    let before = shared.node.status().members.remove(&node);
    let moved = before.is_some_and(|before| before.client != addr || before.raft != raft);
    let done = added(shared, wanted).await;
    match &done {
        Ok(()) if moved => tracing::info!(id, node, addr, raft, "changed the address of a node"),
        Ok(()) => tracing::info!(id, node, addr, raft, "added a node"),
        Err(why) => not_done(shared, id, "add a node", Some(node), why),
    }
    done
}

async fn added(shared: &Shared, wanted: AddNode) -> Done {
    let AddNode { cluster, node, addr, raft, store, joins } = wanted;
    of_this_cluster(shared, &cluster)?;
    let wrong = |why: &str| Refusal::Status(StatusCode::BAD_REQUEST, why.into());
    if node == 0 {
        return Err(wrong("a node's number is 1 or more"));
    }
    for address in [&addr, &raft] {
        if !is_address(address) {
            return Err(wrong(&format!("{address:?} is not the host:port of one host")));
        }
    }
    // A refusal is final, so only the leader refuses.
    let known = shared.node.member(node, CHANGE).await?;
    let others = shared.node.status().members;
    let mut others = others.iter().filter(|(other, _)| **other != node);
    let taken = others.find(|(_, other)| other.client == addr || other.raft == raft);
    if let Some((other, _)) = taken {
        return Err(refused(format!(
            "node {other} is at this address; if it is gone, remove it: \
             `esker cluster remove --node-id {other}`"
        )));
    }
    let store = store.map(|store| u128::from_str_radix(&store, 16)).transpose();
    let store = store.map_err(|_| wrong("the store has 32 hexadecimal digits"))?;
    let store = match (known, store) {
        (None, Some(store)) if joins => store,
        (None, _) => {
            return Err(refused(format!(
                "node {node} is no member, or no longer: a new one joins with --join, and a number \
                 that was removed is not used again"
            )));
        }
        (Some(_), Some(store)) => store,
        (Some(known), None) => known.store,
    };
    let member = Member { raft, client: addr, store, removed: Vec::new() };
    Ok(shared.node.add(node, member, CHANGE).await?)
}

async fn remove(shared: &Shared, id: u64, body: &Bytes) -> Done {
    let RemoveNode { cluster, node } = parse(body)?;
    let done = async {
        of_this_cluster(shared, &cluster)?;
        Ok::<(), Refusal>(shared.node.remove(node, CHANGE).await?)
    };
    let done = done.await;
    match &done {
        Ok(()) => tracing::info!(id, node, "removed a node"),
        Err(why) => not_done(shared, id, "remove a node", Some(node), why),
    }
    done
}

async fn transfer(shared: &Shared, id: u64, body: &Bytes) -> Done<u64> {
    let TransferTo { cluster, node } = parse(body)?;
    // The leader is asked, and leads already.
    let leads_already = node == Some(shared.node.id());
    let done = async {
        of_this_cluster(shared, &cluster)?;
        match node {
            Some(node) if leads_already => {
                shared.node.prove_leadership(CHANGE).await?;
                Ok(node)
            }
            Some(node) => {
                shared.node.transfer(node, CHANGE).await?;
                Ok(node)
            }
            None => Ok(shared.node.resign(CHANGE).await?),
        }
    };
    let done: Done<u64> = done.await;
    match &done {
        Ok(_) if leads_already => {}
        Ok(node) => tracing::info!(id, node, "gave leadership away"),
        Err(why) => not_done(shared, id, "give leadership away", node, why),
    }
    done
}

async fn follow_clock(shared: &Shared, id: u64, body: &Bytes) -> Done<u64> {
    let FollowClock { cluster } = parse(body)?;
    let done = async {
        of_this_cluster(shared, &cluster)?;
        let epoch = shared.oracle.follow_clock().await?;
        match shared.oracle.clock().step {
            Step::Backward(by) => Err(refused(format!(
                "the clock is {:.1} s behind the epoch, which cannot go back",
                by.as_secs_f64()
            ))),
            _ => Ok(epoch),
        }
    };
    let done: Done<u64> = done.await;
    match &done {
        Ok(epoch) => tracing::info!(id, epoch, "epochs follow the clock at once"),
        Err(why) => not_done(shared, id, "follow the clock", None, why),
    }
    done
}

/// Logs why a change was not made. Who asks again and again, as a node that was removed does, gets
/// one line in an interval.
fn not_done(shared: &Shared, id: u64, change: &'static str, node: Option<u64>, why: &Refusal) {
    // The one that leads has the line.
    let Refusal::Status(_, why) = why else { return };
    if shared.refusals.is_new(change, node, why) {
        tracing::warn!(id, change, node, why, "a change of the cluster was refused");
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::RETRY_AFTER;

    use super::*;

    /// The answer was 500, as if the node had a fault.
    #[test]
    fn a_change_that_was_not_proposed_can_be_asked_for_again() {
        let refusal = Refusal::from(NodeError::NotProposed("another change is made".into()));
        let answer = refusal.answer(1);
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            answer.headers().get(RETRY_AFTER).map(|value| value.as_bytes()),
            Some(&b"1"[..])
        );
    }
}
