//! Joining a cluster, and telling it where this node is.

use std::sync::Arc;
use std::time::Duration;

use esker_raft::{ClusterId, Member};
use hyper::StatusCode;
use tokio::time::Instant;

use crate::call::{ask, ask_leader};
use crate::error::ServerError;
use crate::identity::Identity;
use crate::protocol::{AddNode, Members, RemoveNode};
use crate::shared::{CHANGE, Shared};

const ASK: Duration = Duration::from_secs(5);
/// How long a node that joins waits for the first answer of the member: both may start together.
const FIRST: Duration = Duration::from_secs(30);
/// How long a node waits before it tells the cluster again.
const AGAIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(2);

/// Why a node does not get a number.
#[derive(Debug)]
pub(crate) enum AdmitError {
    /// The cluster does not give it.
    Refused(String),
    /// No leader was reached.
    Unavailable(String),
}

/// Asks for a number in the cluster of this member, and returns the cluster's id.
pub(crate) async fn admit(member: &str, node: u64) -> Result<ClusterId, ServerError> {
    let refused = |why: String| ServerError::Join(why);
    let members = members(member).await.map_err(refused)?;
    let mut addresses = vec![member.to_owned()];
    addresses.extend(members.members.iter().map(|member| member.addr.clone()));
    let cluster = cluster_id(&members.cluster);
    let cluster = cluster.ok_or_else(|| refused(format!("{member} names no cluster")))?;
    match admit_at(&addresses, cluster, node).await {
        Ok(()) => Ok(cluster),
        Err(AdmitError::Refused(why) | AdmitError::Unavailable(why)) => Err(refused(why)),
    }
}

/// Asks for a number in this cluster, of which these are members.
///
/// Only the leader knows that the number is free. A member that lags would let a node in again that
/// lost its data, and with it its votes.
pub(crate) async fn admit_at(
    members: &[String],
    cluster: ClusterId,
    node: u64,
) -> Result<(), AdmitError> {
    let body = RemoveNode { cluster: cluster.to_string(), node };
    let body = serde_json::to_vec(&body).map_err(|error| AdmitError::Refused(error.to_string()))?;
    let answer = ask_leader(members, "/cluster/admit", Some(&body), CHANGE).await;
    let answer = answer.map_err(|error| AdmitError::Unavailable(error.to_string()))?;
    match answer.status {
        StatusCode::OK => Ok(()),
        _ => Err(AdmitError::Refused(answer.text())),
    }
}

/// The id that these 32 hexadecimal digits are.
pub(crate) fn cluster_id(text: &str) -> Option<ClusterId> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u128::from_str_radix(text, 16).ok().filter(|_| is_hex)?;
    Some(ClusterId(id.to_be_bytes()))
}

/// The members, as this one names them: as soon as it answers, if it does in time.
async fn members(member: &str) -> Result<Members, String> {
    let (deadline, mut is_reported) = (Instant::now() + FIRST, false);
    let answer = loop {
        let why = match ask(member, "/members", None, ASK).await {
            Ok(answer) => break answer,
            Err(error) => error.to_string(),
        };
        if Instant::now() + AGAIN_MAX >= deadline {
            return Err(why);
        }
        if !is_reported {
            let patience_s = FIRST.as_secs();
            tracing::warn!(
                member,
                why,
                patience_s,
                "the member to join does not answer; asking again, and refusing connections"
            );
            is_reported = true;
        }
        tokio::time::sleep(AGAIN * 4).await;
    };
    let wrong =
        |_| format!("{member} is no node of a cluster: {} {}", answer.status, answer.text());
    serde_json::from_slice(&answer.body).map_err(wrong)
}

/// Tells the cluster where this node is, until it votes under these addresses: after it joined, and
/// after it moved. Only a node that `is_new` joins.
pub(crate) async fn announce(shared: Arc<Shared>, own: Member, join: Vec<String>, is_new: bool) {
    let (mut reported, mut again) = (String::new(), AGAIN);
    loop {
        let status = shared.node.status();
        let known = status.members.get(&status.node);
        if known.is_some_and(|known| known.is_at(&own)) && status.voters.contains(&status.node) {
            return;
        }
        let reached = if status.leads() {
            let reached = shared.node.add(status.node, own.clone(), CHANGE).await;
            reached.map_err(|error| error.to_string())
        } else {
            let others = status.members.iter().filter(|(id, _)| **id != status.node);
            let mut addresses = join.clone();
            addresses.extend(others.map(|(_, member)| member.client.clone()));
            if addresses.is_empty() {
                // Not elected yet, or to be added.
                tokio::time::sleep(again).await;
                continue;
            }
            // What was removed has entries.
            tokio::select! {
                biased;
                outcome = tell(&addresses, &shared.identity, &own, is_new) => outcome,
                () = elected(&shared) => continue,
            }
        };
        match reached {
            Ok(()) => tracing::info!(node = status.node, "the cluster knows this node"),
            Err(why) if why != reported => {
                tracing::warn!(%why, "the cluster does not know this node");
                reported = why;
            }
            Err(_) => {}
        }
        tokio::time::sleep(again).await;
        again = (again * 2).min(AGAIN_MAX);
    }
}

/// Waits until this node leads: it makes the change itself then, and no other one can.
async fn elected(shared: &Shared) {
    while !shared.node.status().leads() {
        tokio::time::sleep(AGAIN * 4).await;
    }
}

async fn tell(
    addresses: &[String],
    identity: &Identity,
    own: &Member,
    joins: bool,
) -> Result<(), String> {
    let body = AddNode {
        cluster: identity.cluster.to_string(),
        node: identity.node,
        addr: own.client.clone(),
        raft: own.raft.clone(),
        store: Some(format!("{:032x}", own.store)),
        joins,
    };
    let body = serde_json::to_vec(&body).map_err(|error| error.to_string())?;
    let answer = ask_leader(addresses, "/cluster/add", Some(&body), CHANGE + ASK).await;
    let answer = answer.map_err(|error| error.to_string())?;
    match answer.status {
        StatusCode::OK => Ok(()),
        _ => Err(answer.text()),
    }
}
