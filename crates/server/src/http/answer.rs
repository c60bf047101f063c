//! How answers look.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::http::client::Client;

pub(crate) type Answer = Response<Full<Bytes>>;

pub(crate) const LEADER: HeaderName = HeaderName::from_static(crate::call::LEADER);
/// Says nothing of what went wrong: that is in the log.
pub(crate) const NEUTRAL: &str = "Something went wrong internally, an error has been logged";

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// For Prometheus.
const METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PLAIN_METRICS: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

fn of(status: StatusCode, kind: HeaderValue, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

pub(crate) fn bytes(body: Bytes) -> Answer {
    of(StatusCode::OK, BYTES, body)
}

pub(crate) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    of(status, TEXT, body.into())
}

pub(crate) fn json(client: &Client, id: u64, value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(body) => long(client, JSON, body.into()),
        Err(error) => failed(id, &error),
    }
}

pub(crate) fn metrics(client: &Client, body: String) -> Answer {
    long(client, METRICS, body.into())
}

pub(crate) fn plain_metrics(client: &Client, body: String) -> Answer {
    long(client, PLAIN_METRICS, body.into())
}

/// An answer that has room of its client's until it is sent.
fn long(client: &Client, kind: HeaderValue, body: Bytes) -> Answer {
    match client.hold(body) {
        Ok(body) => of(StatusCode::OK, kind, body),
        Err(_) => busy(),
    }
}

/// The client, or all of them, have too many requests whose answers they did not take.
pub(crate) fn busy() -> Answer {
    let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, "too many requests are waiting");
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

    #[test]
    fn an_answer_that_is_not_taken_keeps_its_room() {
        let rooms = Rooms::new(0, 16 << 10, 0);
        let client = Client::new(&rooms, SocketAddr::from(([127, 0, 0, 1], 1)));
        let long = || metrics(&client, "x".repeat(10 << 10));
        let kept = long();
        assert_eq!(kept.status(), StatusCode::OK);
        let refused = json(&client, 1, &"x".repeat(10 << 10));
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key(RETRY_AFTER));
        assert_eq!(json(&client, 1, &"x".repeat(200)).status(), StatusCode::OK);
        drop(kept);
        assert_eq!(long().status(), StatusCode::OK);
    }
}
