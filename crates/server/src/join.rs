//! Joining a cluster, and announcing the addresses of this node to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use esker_raft::{ClusterId, Member};
use hyper::StatusCode;
use serde::Serialize;
use tokio::time::Instant;

use crate::call::{MEMBER_CALL_TIMEOUT, NO_CERTIFICATES, ask_as, ask_leader};
use crate::error::{BrokenInvariant, ServerError};
use crate::node_state::{CHANGE_TIMEOUT, NodeState};
use crate::protocol::{AddNodeRequest, AdmitNodeRequest, Members};
use crate::security::Caller;

/// The time that a node that joins waits for the first answer of the member: both may start
/// together.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait before another announcement. It doubles with each.
const RETRY_DELAY: Duration = Duration::from_millis(50);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(2);
/// The time between two checks of whether a member answers, or of whether this node leads.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

const _: () = assert!(RETRY_DELAY_MAX.as_millis() < FIRST_ANSWER_TIMEOUT.as_millis());

/// The error of a node that does not get its number.
#[derive(Debug)]
pub(crate) enum AdmitError {
    /// The cluster refuses it.
    Refused(String),
    /// No leader was reached.
    Unavailable(String),
    /// An invariant does not hold.
    Broken(BrokenInvariant),
}

impl fmt::Display for AdmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) | Self::Unavailable(why) => f.write_str(why),
            Self::Broken(BrokenInvariant(invariant)) => write!(f, "not true that {invariant}"),
        }
    }
}

/// Asks the cluster of this member whether a node may have this number. Returns the id of the
/// cluster.
pub(crate) async fn admit(
    caller: &Caller,
    member: &str,
    node: u64,
) -> Result<ClusterId, ServerError> {
    let refused = |why: String| ServerError::Join(why);
    let members = fetch_members(caller, member).await.map_err(refused)?;
    let mut addresses = vec![member.to_owned()];
    addresses.extend(members.members.iter().map(|member| member.addr.clone()));
    let cluster = parse_cluster_id(&members.cluster);
    let cluster = cluster.ok_or_else(|| refused(format!("{member} names no cluster")))?;
    match admit_at(caller, &addresses, cluster, node).await {
        Ok(()) => Ok(cluster),
        Err(AdmitError::Refused(why) | AdmitError::Unavailable(why)) => Err(refused(why)),
        Err(AdmitError::Broken(broken)) => Err(ServerError::internal(broken)),
    }
}

/// Asks this cluster, of which these are members, whether a node may have this number.
///
/// Only the leader knows that the number is free. A member that lags would let a node in again that
/// lost its data, and with it its votes.
pub(crate) async fn admit_at(
    caller: &Caller,
    members: &[String],
    cluster: ClusterId,
    node: u64,
) -> Result<(), AdmitError> {
    let body = AdmitNodeRequest { cluster: cluster.to_string(), node };
    let body = encode(&body)?;
    let deadline = Instant::now() + CHANGE_TIMEOUT;
    let answer = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match ask_leader(caller, members, "/cluster/admit", Some(&body), left).await {
            Ok(answer) => break answer,
            // It changes nothing: it may be asked twice.
            Err(error) if error.may_still_happen && left > CHECK_INTERVAL => {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
            Err(error) => return Err(AdmitError::Unavailable(error.to_string())),
        }
    };
    debug_assert!(!answer.status.is_server_error(), "the leader is asked until it can answer");
    match answer.status {
        StatusCode::OK => Ok(()),
        _ => Err(AdmitError::Refused(answer.text())),
    }
}

fn encode(request: &impl Serialize) -> Result<Vec<u8>, AdmitError> {
    let broken = |_| AdmitError::Broken(BrokenInvariant("requests to members are encoded as JSON"));
    serde_json::to_vec(request).map_err(broken)
}

/// Parses the id of a cluster, 32 hexadecimal digits.
pub(crate) fn parse_cluster_id(text: &str) -> Option<ClusterId> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u128::from_str_radix(text, 16).ok().filter(|_| is_hex)?;
    let id = ClusterId(id.to_be_bytes());
    debug_assert_eq!(id.to_string(), text.to_lowercase(), "an id is shown as it is parsed");
    Some(id)
}

/// Fetches the members from this one. Waits for it, as it may start at the same time.
async fn fetch_members(caller: &Caller, member: &str) -> Result<Members, String> {
    let (deadline, mut is_reported) = (Instant::now() + FIRST_ANSWER_TIMEOUT, false);
    let answer = loop {
        let why = match ask_as(caller, member, "/members", None, MEMBER_CALL_TIMEOUT).await {
            Ok(answer) if answer.is_of_tls_port() => {
                let why = format!("{member}: {NO_CERTIFICATES}");
                // With certificates, a handshake has failed before, and another one may not.
                if !caller.has_certificates() {
                    return Err(why);
                }
                why
            }
            Ok(answer) => break answer,
            Err(error) => error.to_string(),
        };
        if Instant::now() + RETRY_DELAY_MAX >= deadline {
            return Err(why);
        }
        if !is_reported {
            let patience_s = FIRST_ANSWER_TIMEOUT.as_secs();
            tracing::warn!(
                member,
                why,
                patience_s,
                "the member to join does not answer; asking again, and refusing connections"
            );
            is_reported = true;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    };
    let wrong =
        |_| format!("{member} is no node of a cluster: {} {}", answer.status, answer.text());
    serde_json::from_slice(&answer.body).map_err(wrong)
}

/// Announces the addresses of this node to the cluster until it votes under them: after it joined,
/// and after it moved. Only a node that `is_new` joins.
pub(crate) async fn announce(state: Arc<NodeState>, own: Member, join: Vec<String>, is_new: bool) {
    let (mut reported, mut delay) = (String::new(), RETRY_DELAY);
    loop {
        let status = state.node().status();
        let known = status.members.get(&status.node);
        if known.is_some_and(|known| known.is_at(&own)) && status.voters.contains(&status.node) {
            return;
        }
        let reached = if status.leads() {
            let reached = state.node().add(status.node, own.clone(), CHANGE_TIMEOUT).await;
            reached.map_err(|error| AdmitError::Refused(error.to_string()))
        } else {
            let others = status.members.iter().filter(|(id, _)| **id != status.node);
            let mut addresses = join.clone();
            addresses.extend(others.map(|(_, member)| member.client.clone()));
            if addresses.is_empty() {
                // Not elected yet, or not added yet.
                tokio::time::sleep(delay).await;
                continue;
            }
            // A node that was removed has entries: it asks too, and is refused.
            tokio::select! {
                biased;
                outcome = request_add(&state, &addresses, &own, is_new) => outcome,
                () = wait_for_leadership(&state) => continue,
            }
        };
        match reached {
            Ok(()) => tracing::info!(node = status.node, "the cluster knows this node"),
            Err(AdmitError::Broken(broken)) => return state.failures().report_broken(broken),
            Err(error) => {
                let why = error.to_string();
                if why != reported {
                    tracing::warn!(why, "the cluster does not know this node");
                    reported = why;
                }
            }
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RETRY_DELAY_MAX);
    }
}

/// Waits until this node leads: then it makes the change itself, and no other node can.
async fn wait_for_leadership(state: &NodeState) {
    while !state.node().status().leads() {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Asks the leader to add this node, or to change its addresses.
async fn request_add(
    state: &NodeState,
    addresses: &[String],
    own: &Member,
    joins: bool,
) -> Result<(), AdmitError> {
    let identity = state.identity();
    let body = AddNodeRequest {
        cluster: identity.cluster.to_string(),
        node: identity.node,
        addr: own.client.clone(),
        raft: own.raft.clone(),
        store: Some(format!("{:032x}", own.store)),
        joins,
    };
    let body = encode(&body)?;
    let timeout = CHANGE_TIMEOUT + MEMBER_CALL_TIMEOUT;
    let answer = ask_leader(state.caller(), addresses, "/cluster/add", Some(&body), timeout).await;
    let answer = answer.map_err(|error| AdmitError::Unavailable(error.to_string()))?;
    match answer.status {
        StatusCode::OK => Ok(()),
        _ => Err(AdmitError::Refused(answer.text())),
    }
}
