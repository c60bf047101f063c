//! The checks before a change, of the cluster or of its sequences, and why one is not made.

use esker_oracle::{OracleError, SequenceError};
use esker_raft::{Member, NodeError};
use hyper::header::HeaderMap;
use hyper::{StatusCode, Uri};

use crate::http::answer::{self, Answer};
use crate::http::client_connection::ConnectionState;
use crate::node_state::{CHANGE_TIMEOUT, NodeState};
use crate::security::{is_of_own_page, requested_host};
use crate::tls::ClientRole;

/// The reason why a change was not made.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no memory for the body.
    Busy,
    /// No leader is known, as in each election, and while a cluster is founded.
    NoLeader,
    Status(StatusCode, String),
    NotLeader {
        leader: u64,
        address: String,
    },
}

pub(crate) type ChangeResult<T = ()> = Result<T, Refusal>;

impl From<NodeError> for Refusal {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::NotLeader { leader: Some((leader, Member { client, .. })) } => {
                Self::NotLeader { leader, address: client }
            }
            NodeError::NotLeader { leader: None } => Self::NoLeader,
            NodeError::Membership(why) => unprocessable(why),
            error if error.may_still_happen() => {
                Self::Status(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
            }
            error => nothing_changed(error.to_string()),
        }
    }
}

impl From<OracleError> for Refusal {
    fn from(error: OracleError) -> Self {
        match error {
            OracleError::NotLeader { leader } => NodeError::NotLeader { leader }.into(),
            OracleError::Unavailable(error) => error.into(),
            OracleError::Busy => nothing_changed(error.to_string()),
            OracleError::Clock { .. }
            | OracleError::ClockTooHigh { .. }
            | OracleError::NoEpochLeft => unprocessable(error.to_string()),
            error => Self::Status(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

impl From<SequenceError> for Refusal {
    fn from(error: SequenceError) -> Self {
        let status = match error {
            SequenceError::Unavailable(error) => return error.into(),
            SequenceError::Busy => return nothing_changed(error.to_string()),
            SequenceError::Count(_) | SequenceError::First(_) => StatusCode::BAD_REQUEST,
            SequenceError::NoSequence => StatusCode::NOT_FOUND,
            SequenceError::KeyTooOld => StatusCode::GONE,
            SequenceError::Exists
            | SequenceError::TooMany
            | SequenceError::KeyUsed
            | SequenceError::KeyNotIssued
            | SequenceError::UsedUp => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::Status(status, error.to_string())
    }
}

impl Refusal {
    /// Answers as the node with this number.
    pub(crate) fn answer(self, own: u64) -> Answer {
        match self {
            Self::Busy => answer::busy(),
            Self::NoLeader => {
                answer::unavailable(NodeError::NotLeader { leader: None }.to_string())
            }
            Self::Status(StatusCode::SERVICE_UNAVAILABLE, why) => answer::unavailable(why),
            Self::Status(status, why) => answer::text(status, why),
            Self::NotLeader { leader, address } => answer::not_leader(own, leader, &address),
        }
    }
}

/// The refusal of a change of which nothing was made. The same request may succeed later. Only this
/// status lets a client send it again.
fn nothing_changed(why: String) -> Refusal {
    Refusal::Status(StatusCode::SERVICE_UNAVAILABLE, why)
}

pub(crate) fn unprocessable(why: impl Into<String>) -> Refusal {
    Refusal::Status(StatusCode::UNPROCESSABLE_ENTITY, why.into())
}

/// The refusal for an error of a question before any change.
pub(crate) fn nothing_changed_by(error: NodeError) -> Refusal {
    match error.may_still_happen() {
        true => nothing_changed(error.to_string()),
        false => error.into(),
    }
}

/// Returns the answer to a caller that may make no change; `None` to one that may.
pub(crate) fn change_denial(
    connection: &ConnectionState,
    uri: &Uri,
    headers: &HeaderMap,
) -> Option<Answer> {
    let state = connection.node();
    let (caller, from) = (connection.access(), connection.client().from());
    let host = requested_host(uri, headers);
    if let Err(denial) = state.change_access().check(caller, headers, host, from) {
        return Some(answer::denied(denial));
    }
    let is_own = is_of_own_page(headers, host, caller.is_encrypted);
    let why = "a page of another origin may not change the cluster; a proxy has to pass Host on as \
               it is";
    (!is_own).then(|| answer::text(StatusCode::FORBIDDEN, why))
}

pub(crate) async fn was_removed(state: &NodeState, node: u64) -> ChangeResult<bool> {
    state.node().was_removed(node, CHANGE_TIMEOUT).await.map_err(nothing_changed_by)
}

/// Refuses a caller that shows the certificate of a node that was removed: it may be valid for
/// months.
pub(crate) async fn refuse_removed_node(state: &NodeState, role: ClientRole) -> ChangeResult {
    let ClientRole::Node(node) = role else { return Ok(()) };
    match was_removed(state, node).await? {
        true => Err(removed(node)),
        false => Ok(()),
    }
}

pub(crate) fn removed(node: u64) -> Refusal {
    unprocessable(format!(
        "node {node} was removed, and its number is not given again: take another one"
    ))
}

/// Logs why a change was not made. A node that asks again and again, as one that was removed does,
/// gets one line in an interval.
pub(crate) fn log_refusal(
    state: &NodeState,
    id: u64,
    change: &'static str,
    node: Option<u64>,
    why: &Refusal,
) {
    let why = match why {
        Refusal::Status(_, why) => why,
        // No fault: a node that joins asks again.
        Refusal::NoLeader => {
            return tracing::info!(
                id,
                change,
                node,
                "no node leads: a change of the cluster waits"
            );
        }
        // The leader logs it.
        Refusal::Busy | Refusal::NotLeader { .. } => return,
    };
    if state.should_log_refusal(change, node, why) {
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
        let not_proposed = [
            NodeError::NotProposed("another change is made".into()),
            NodeError::NotLeader { leader: None },
            NodeError::NoQuorum,
            NodeError::LeadershipTransfer,
        ];
        for error in not_proposed {
            let answer = Refusal::from(error.clone()).answer(1);
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{error}");
            let retry_after = answer.headers().get(RETRY_AFTER).map(|value| value.as_bytes());
            assert_eq!(retry_after, Some(&b"1"[..]));
        }
        for error in [NodeError::TimedOut, NodeError::Unknown, NodeError::Stopped("".into())] {
            let answer = Refusal::from(error.clone()).answer(1);
            assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR, "{error}");
        }
    }

    /// A client may use another key only where the status shows that this try took nothing.
    #[test]
    fn each_error_of_a_sequence_has_its_status() {
        let cases = [
            (SequenceError::Count(0), 400),
            (SequenceError::First(0), 400),
            (SequenceError::NoSequence, 404),
            (SequenceError::KeyTooOld, 410),
            (SequenceError::Exists, 422),
            (SequenceError::TooMany, 422),
            (SequenceError::KeyUsed, 422),
            (SequenceError::KeyNotIssued, 422),
            (SequenceError::UsedUp, 422),
            (SequenceError::Busy, 503),
            (SequenceError::Unavailable(NodeError::NoQuorum), 503),
            (SequenceError::Unavailable(NodeError::NotLeader { leader: None }), 503),
            (SequenceError::Unavailable(NodeError::TimedOut), 500),
            (SequenceError::Unavailable(NodeError::Unknown), 500),
        ];
        for (error, status) in cases {
            assert_eq!(Refusal::from(error.clone()).answer(1).status(), status, "{error}");
        }
        let leader = Some((2, Member::default()));
        let follower = SequenceError::Unavailable(NodeError::NotLeader { leader });
        assert_eq!(Refusal::from(follower).answer(1).status(), 409);
    }
}
