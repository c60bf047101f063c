//! Answers to requests: statuses, headers and bodies.

use bytes::Bytes;
use hyper::header::{
    CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::error::BrokenInvariant;
use crate::http::body::AnswerBody;
use crate::http::client_connection::ClientConnection;
use crate::memory_budget::Permit;
use crate::security::Denial;
use crate::supervisor::FailureSignal;

pub(crate) type Answer = Response<AnswerBody>;

pub(crate) const LEADER_HEADER: HeaderName = HeaderName::from_static(crate::call::LEADER_HEADER);
/// The text of an internal error. The log has the cause.
pub(crate) const NEUTRAL_MESSAGE: &str =
    "Something went wrong internally, an error has been logged";

const TEXT_TYPE: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const BYTES_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");
const JSON_TYPE: HeaderValue = HeaderValue::from_static("application/json");
/// The type for clients that ask for OpenMetrics.
const OPEN_METRICS_TYPE: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PLAIN_METRICS_TYPE: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

fn new_answer(status: StatusCode, content_type: HeaderValue, body: AnswerBody) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}

pub(crate) fn bytes(body: AnswerBody) -> Answer {
    new_answer(StatusCode::OK, BYTES_TYPE, body)
}

pub(crate) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    new_answer(status, TEXT_TYPE, body.into().into())
}

/// Answers with JSON. It uses memory of the client's connection until it is sent, unless it is
/// short.
pub(crate) async fn json(client: &ClientConnection, value: &impl Serialize) -> Answer {
    let Ok(body) = serde_json::to_vec(value) else {
        let broken = BrokenInvariant("all answers are encoded as JSON");
        return internal(client.failures(), broken);
    };
    match client.permit_answer(body.len()).await {
        Ok(permit) => new_answer(StatusCode::OK, JSON_TYPE, AnswerBody::new(body.into(), permit)),
        Err(_) => busy(),
    }
}

/// Answers with JSON that is encoded, and short enough to use no memory of a connection.
pub(crate) fn short_json(body: Bytes) -> Answer {
    new_answer(StatusCode::OK, JSON_TYPE, body.into())
}

/// Answers with metrics, which use the memory of the permit.
pub(crate) fn metrics(body: String, is_plain: bool, permit: Option<Permit>) -> Answer {
    let content_type = if is_plain { PLAIN_METRICS_TYPE } else { OPEN_METRICS_TYPE };
    new_answer(StatusCode::OK, content_type, AnswerBody::new(body.into(), permit))
}

/// Answers 503: the client, or all of them, have not taken too many answers.
pub(crate) fn busy() -> Answer {
    unavailable("too many requests are waiting")
}

/// Answers 503: the connection is beyond the limit.
pub(crate) fn over_limit() -> Answer {
    unavailable("all connections are in use (--connections)")
}

/// Answers 503: another node may serve the request, or this one later.
pub(crate) fn unavailable(why: impl Into<Bytes>) -> Answer {
    let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, why);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// Answers 401 or 403: the caller may not change the cluster.
pub(crate) fn denied(denial: Denial) -> Answer {
    match denial {
        Denial::NoToken(why) | Denial::WrongToken(why) => {
            let mut answer = text(StatusCode::UNAUTHORIZED, why);
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            answer
        }
        Denial::Certificate(why) | Denial::Closed(why) => text(StatusCode::FORBIDDEN, why),
    }
}

/// Answers 500 and stops the node: the invariant does not hold.
///
/// # Panics
/// In debug builds.
#[track_caller]
pub(crate) fn internal(failures: &FailureSignal, broken: BrokenInvariant) -> Answer {
    failures.report_broken(broken);
    let BrokenInvariant(invariant) = broken;
    let why = format!("a bug of this node: not true that {invariant}; the node stops");
    text(StatusCode::INTERNAL_SERVER_ERROR, why)
}

/// Answers 409: another node leads.
pub(crate) fn not_leader(node: u64, leader: u64, address: &str) -> Answer {
    let why = format!("node ({node}) is not the leader ({leader})");
    let mut answer = text(StatusCode::CONFLICT, why);
    if let Some(address) = header(address) {
        answer.headers_mut().insert(LEADER_HEADER, address);
    }
    answer
}

/// Answers 307: another node leads, and the same request is for that one.
pub(crate) fn redirect(node: u64, leader: u64, address: &str, location: &str) -> Answer {
    let mut answer = not_leader(node, leader, address);
    if let Some(location) = header(location) {
        *answer.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}

/// Returns the header of an address. The address of a member was checked when it was added: without
/// the header, the client only looks for the leader by itself.
fn header(address: &str) -> Option<HeaderValue> {
    let value = HeaderValue::from_str(address);
    debug_assert!(value.is_ok(), "{address:?} is the address of a member");
    value.ok()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::memory_budget::MemoryBudget;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_taken_keeps_its_memory() {
        let memory = MemoryBudget::with_bytes(0, 256 << 10, 0, FailureSignal::default());
        let client = ClientConnection::new(&memory, SocketAddr::from(([127, 0, 0, 1], 1)));
        let long = async || json(&client, &"x".repeat(10 << 10)).await;
        let kept = long().await;
        assert_eq!(kept.status(), StatusCode::OK);
        let refused = long().await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key(RETRY_AFTER));
        assert_eq!(json(&client, &"x".repeat(200)).await.status(), StatusCode::OK);
        drop(kept);
        assert_eq!(long().await.status(), StatusCode::OK);
    }
}
