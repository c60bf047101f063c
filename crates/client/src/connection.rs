//! A connection to a node: HTTP/2, plain or over TLS.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{HeaderName, RETRY_AFTER};
use hyper::http::response::Parts;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::timeout;

use crate::address::Address;
use crate::answer::{ERROR_TEXT_CHARS_MAX, NextStep, RANGE_BYTES, RawAnswer, excerpt};
use crate::error::AttemptErrorKind;
use crate::members::Members;
use crate::transport::{TlsFailure, Transport};

/// The header with the address of the leader.
pub(crate) const LEADER_HEADER: HeaderName = HeaderName::from_static("esker-leader");
/// The protocol's name in ALPN.
pub(crate) const HTTP2: &[u8] = b"h2";
/// The longest answer to a request for timestamps.
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// The longest list of members.
const MEMBERS_BYTES_MAX: usize = 1 << 20;
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// The time that a request may take. A node answers within a second, also when it cannot serve.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);
/// The time between two pings while a request waits, and the time that a ping may take.
const PING_INTERVAL: Duration = Duration::from_millis(200);
const PING_TIMEOUT: Duration = Duration::from_millis(300);

const _: () = assert!(RANGE_BYTES <= ANSWER_BYTES_MAX);
const _: () = assert!(
    PING_INTERVAL.as_millis() + PING_TIMEOUT.as_millis() < ANSWER_TIMEOUT.as_millis(),
    "a dead peer is noticed before a request times out"
);

/// A connection to a node. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct NodeConnection {
    /// The number of the connection, unique in the client.
    pub(crate) serial: u64,
    pub(crate) address: Address,
    transport: Transport,
    sender: SendRequest<Empty<Bytes>>,
    failure: TlsFailure,
}

impl NodeConnection {
    /// Connects, and asks for the members of the cluster.
    pub(crate) async fn open(
        transport: Transport,
        address: Address,
        serial: u64,
        connect_timeout: Duration,
    ) -> Result<(Self, Members), AttemptErrorKind> {
        let opened = timeout(connect_timeout, async {
            let stream = transport.connect(&address).await?;
            let failure = stream.failure();
            let mut builder = Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).max_header_list_size(HEADERS_BYTES_MAX);
            builder.keep_alive_interval(PING_INTERVAL).keep_alive_timeout(PING_TIMEOUT);
            let handshake = builder.handshake(TokioIo::new(stream)).await;
            let failed = |error| not_a_node(failed(&failure, error));
            let (sender, connection) = handshake.map_err(failed)?;
            // It ends with its last sender; what fails there fails the requests, too.
            tokio::spawn(async move { drop(connection.await) });
            let mut link = Self { serial, address, transport, sender, failure };
            let (head, body) = link.get("/members", MEMBERS_BYTES_MAX).await.map_err(not_a_node)?;
            // A node that waits for its cluster answers so.
            if head.status == StatusCode::SERVICE_UNAVAILABLE {
                return Err(AttemptErrorKind::Status(
                    head.status.as_u16(),
                    excerpt(&body, ERROR_TEXT_CHARS_MAX),
                ));
            }
            let members = Members::parse(&body).filter(|_| head.status == StatusCode::OK);
            let members = members.ok_or_else(|| {
                AttemptErrorKind::NotANode("its answer is no list of members".into())
            })?;
            Ok((link, members))
        });
        opened.await.unwrap_or(Err(AttemptErrorKind::NoAnswer(connect_timeout)))
    }

    /// Whether the connection accepts no more requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Asks for `count` timestamps.
    pub(crate) async fn request_timestamps(
        &mut self,
        count: u32,
    ) -> Result<NextStep, AttemptErrorKind> {
        let path = format!("/timestamp?n={count}&format=range");
        let answered = timeout(ANSWER_TIMEOUT, self.get(&path, ANSWER_BYTES_MAX)).await;
        let (head, body) = answered.unwrap_or(Err(AttemptErrorKind::NoAnswer(ANSWER_TIMEOUT)))?;
        let header = |name| head.headers.get(name)?.to_str().ok();
        let answer = RawAnswer {
            status: head.status.as_u16(),
            leader: header(LEADER_HEADER),
            retry_after: header(RETRY_AFTER),
            body: &body,
        };
        Ok(answer.next_step(count))
    }

    async fn get(
        &mut self,
        path: &str,
        bytes_max: usize,
    ) -> Result<(Parts, Bytes), AttemptErrorKind> {
        let request = Request::get(self.transport.url(&self.address, path)).body(Empty::new());
        let request = request.map_err(|error| AttemptErrorKind::Connection(error.to_string()))?;
        let failed = |error| failed(&self.failure, error);
        self.sender.ready().await.map_err(failed)?;
        let (head, body) = self.sender.send_request(request).await.map_err(failed)?.into_parts();
        let body = Limited::new(body, bytes_max).collect().await;
        let body =
            body.map_err(|error| AttemptErrorKind::Connection(error.to_string()))?.to_bytes();
        debug_assert!(body.len() <= bytes_max, "answers are bounded");
        Ok((head, body))
    }
}

/// Converts the error of a connection that ended before its first answer.
fn not_a_node(error: AttemptErrorKind) -> AttemptErrorKind {
    match error {
        AttemptErrorKind::Connection(why) => AttemptErrorKind::NotANode(why),
        other => other,
    }
}

/// Converts the error of a connection: the failure of TLS that caused it, or its sources.
pub(crate) fn failed(failure: &TlsFailure, error: hyper::Error) -> AttemptErrorKind {
    if let Some(failure) = failure.get() {
        return AttemptErrorKind::Tls(failure.clone());
    }
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        why = format!("{why}: {error}");
        source = error.source();
    }
    AttemptErrorKind::Connection(why)
}
