//! How answers look.

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::http::body::AnswerBody;
use crate::http::client::Client;
use crate::protocol::FoundingStatus;
use crate::rooms::Room;

pub(crate) type Answer = Response<AnswerBody>;

pub(crate) const LEADER: HeaderName = HeaderName::from_static(crate::call::LEADER);
/// Says nothing of what went wrong: that is in the log.
pub(crate) const NEUTRAL: &str = "Something went wrong internally, an error has been logged";

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// For clients that ask for it.
const METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PLAIN_METRICS: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

fn of(status: StatusCode, kind: HeaderValue, body: AnswerBody) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

pub(crate) fn bytes(body: AnswerBody) -> Answer {
    of(StatusCode::OK, BYTES, body)
}

pub(crate) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    of(status, TEXT, body.into().into())
}

/// An answer that has room of its client's until it is sent, unless it is short.
pub(crate) async fn json(client: &Client, id: u64, value: &impl Serialize) -> Answer {
    let body = match serde_json::to_vec(value) {
        Ok(body) => Bytes::from(body),
        Err(error) => return failed(id, &error),
    };
    match client.room_for_other(body.len()).await {
        Ok(room) => of(StatusCode::OK, JSON, AnswerBody::new(body, room)),
        Err(_) => busy(),
    }
}

/// Says of which cluster a node is, or is to be. It is short: the list has a few addresses.
pub(crate) fn founding(status: &FoundingStatus) -> Answer {
    match serde_json::to_vec(status) {
        Ok(body) => of(StatusCode::OK, JSON, Bytes::from(body).into()),
        Err(error) => failed(0, &error),
    }
}

/// Metrics that have this room.
pub(crate) fn metrics(body: String, is_plain: bool, room: Option<Room>) -> Answer {
    let kind = if is_plain { PLAIN_METRICS } else { METRICS };
    of(StatusCode::OK, kind, AnswerBody::new(body.into(), room))
}

/// The client, or all of them, have too many requests whose answers they did not take.
pub(crate) fn busy() -> Answer {
    unavailable("too many requests are waiting")
}

/// The connection is beyond the limit.
pub(crate) fn full() -> Answer {
    unavailable("all connections are in use (--connections)")
}

/// Another node may serve, or this one later.
pub(crate) fn unavailable(why: impl Into<Bytes>) -> Answer {
    let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, why);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// An error that is not the client's, of the request with this id.
pub(crate) fn failed(id: u64, error: &(dyn std::error::Error + 'static)) -> Answer {
    tracing::error!(id, error, "a request failed");
    text(StatusCode::INTERNAL_SERVER_ERROR, NEUTRAL)
}

/// Another node leads.
pub(crate) fn not_leader(node: u64, leader: u64, address: &str) -> Answer {
    let why = format!("node ({node}) is not the leader ({leader})");
    let mut answer = text(StatusCode::CONFLICT, why);
    if let Ok(address) = HeaderValue::from_str(address) {
        answer.headers_mut().insert(LEADER, address);
    }
    answer
}

/// Another node leads: the same request is for that one.
pub(crate) fn redirect(node: u64, leader: u64, address: &str, location: &str) -> Answer {
    let mut answer = not_leader(node, leader, address);
    if let Ok(location) = HeaderValue::from_str(location) {
        *answer.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::rooms::Rooms;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_taken_keeps_its_room() {
        let rooms = Rooms::new(0, 256 << 10, 0);
        let client = Client::new(&rooms, SocketAddr::from(([127, 0, 0, 1], 1)));
        let long = async || json(&client, 1, &"x".repeat(10 << 10)).await;
        let kept = long().await;
        assert_eq!(kept.status(), StatusCode::OK);
        let refused = long().await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key(RETRY_AFTER));
        assert_eq!(json(&client, 1, &"x".repeat(200)).await.status(), StatusCode::OK);
        drop(kept);
        assert_eq!(long().await.status(), StatusCode::OK);
    }
}
