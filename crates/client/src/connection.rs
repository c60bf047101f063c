//! A connection to a node: HTTP/2, plain or over TLS.

use std::time::Duration;

use bytes::Bytes;
use esker_oracle::TimestampWidth;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::RETRY_AFTER;
use hyper::http::response::Parts;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::timeout;

use crate::address::Address;
use crate::answer::{
    ERROR_TEXT_CHARS_MAX, LEADER_HEADER, NextStep, RANGE_BYTES_MAX, REFUSAL_HEADER, RawAnswer,
    TimestampResult, excerpt, request_path,
};
use crate::connection_error::{body_error, connection_error, with_port_advice};
use crate::error::{AttemptError, AttemptErrorKind};
use crate::members::Members;
use crate::sequence_request::{SequenceRequest, SequenceStep};
use crate::transport::{TlsFailure, Transport};

/// The protocol's name in ALPN.
pub(crate) const HTTP2: &[u8] = b"h2";
/// The longest answer to a request for timestamps.
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// The longest list of members.
const MEMBERS_BYTES_MAX: usize = 1 << 20;
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// The time that a request may take. A node answers within a second, also when it cannot serve.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1500);
/// The time that a request for numbers of a sequence may take: a quorum makes them durable.
const SEQUENCE_ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The time between two pings while a request waits, and the time that a ping may take.
const PING_INTERVAL: Duration = Duration::from_millis(200);
const PING_TIMEOUT: Duration = Duration::from_millis(300);

const _: () = assert!(RANGE_BYTES_MAX <= ANSWER_BYTES_MAX);
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
            let failed = |error| with_port_advice(connection_error(&failure, &error));
            let (sender, connection) = handshake.map_err(failed)?;
            // It ends with its last sender; what fails there fails the requests, too.
            tokio::spawn(async move { drop(connection.await) });
            let mut link = Self { serial, address, transport, sender, failure };
            let answer = link.exchange(Method::GET, "/members", MEMBERS_BYTES_MAX).await;
            let (head, body) = answer.map_err(with_port_advice)?;
            // A node that waits for its cluster answers so.
            if head.status == StatusCode::SERVICE_UNAVAILABLE {
                return Err(AttemptErrorKind::Status {
                    status: head.status.as_u16(),
                    text: excerpt(&body, ERROR_TEXT_CHARS_MAX),
                });
            }
            let members = Members::parse(&body).filter(|_| head.status == StatusCode::OK);
            let members = members.ok_or_else(|| {
                AttemptErrorKind::NotANode("its answer is no list of members".into())
            })?;
            Ok((link, members))
        });
        opened.await.unwrap_or(Err(AttemptErrorKind::NoAnswer { within: connect_timeout }))
    }

    /// Whether the connection accepts no more requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Returns the error of an attempt over this connection.
    pub(crate) fn failure(&self, kind: AttemptErrorKind) -> AttemptError {
        AttemptError { address: self.address.to_string(), kind }
    }

    /// Asks for `count` timestamps.
    pub(crate) async fn request_timestamps(
        &mut self,
        count: u32,
        width: TimestampWidth,
    ) -> Result<NextStep<TimestampResult>, AttemptErrorKind> {
        let path = request_path(count, width);
        let (head, body) = self.ask(Method::GET, &path, ANSWER_TIMEOUT).await?;
        Ok(raw_answer(&head, &body).next_step(count, width))
    }

    /// Asks for numbers of a sequence.
    pub(crate) async fn request_numbers(
        &mut self,
        request: &SequenceRequest,
    ) -> Result<SequenceStep, AttemptErrorKind> {
        let asked = self.ask(Method::POST, &request.path(), SEQUENCE_ANSWER_TIMEOUT).await;
        let (head, body) = asked?;
        Ok(request.next_step(&raw_answer(&head, &body), &self.address))
    }

    /// Sends a request to a node that has answered before.
    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        within: Duration,
    ) -> Result<(Parts, Bytes), AttemptErrorKind> {
        let answered = timeout(within, self.exchange(method, path, ANSWER_BYTES_MAX)).await;
        let no_answer = AttemptErrorKind::NoAnswer { within };
        answered.unwrap_or(Err(no_answer)).map_err(|kind| match kind {
            // It answered as a node when the connection was made.
            AttemptErrorKind::NotANode(why) => AttemptErrorKind::Connection(why),
            kind => kind,
        })
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        bytes_max: usize,
    ) -> Result<(Parts, Bytes), AttemptErrorKind> {
        let request = Request::builder().method(method);
        let request = request.uri(self.transport.url(&self.address, path)).body(Empty::new());
        let request = request.map_err(|error| AttemptErrorKind::Connection(error.to_string()))?;
        let failed = |error| connection_error(&self.failure, &error);
        self.sender.ready().await.map_err(failed)?;
        let (head, body) = self.sender.send_request(request).await.map_err(failed)?.into_parts();
        let body = Limited::new(body, bytes_max).collect().await;
        let body = body.map_err(|error| body_error(&self.failure, &*error))?.to_bytes();
        debug_assert!(body.len() <= bytes_max, "answers are bounded");
        Ok((head, body))
    }
}

fn raw_answer<'a>(head: &'a Parts, body: &'a [u8]) -> RawAnswer<'a> {
    let header = |name| head.headers.get(name)?.to_str().ok();
    RawAnswer {
        status: head.status.as_u16(),
        leader: header(LEADER_HEADER),
        refusal: header(REFUSAL_HEADER),
        retry_after: header(RETRY_AFTER),
        body,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;
    use std::pin::pin;

    use hyper::Response;
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    use super::*;

    /// A node that answers with an empty list of members, until it falls silent.
    async fn node() -> (Address, oneshot::Sender<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::from_node(&listener.local_addr().unwrap().to_string()).unwrap();
        let (silence, is_silent) = oneshot::channel();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = service_fn(async |_| {
                Ok::<_, Infallible>(Response::new(r#"{"members":[]}"#.to_owned()))
            });
            let builder = http2::Builder::new(TokioExecutor::new());
            let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), answer));
            tokio::select! {
                biased;
                _ = is_silent => std::future::pending().await,
                served = serving.as_mut() => served.unwrap(),
            }
        });
        (address, silence)
    }

    /// A node that is stopped keeps its connections. It was given up only when its answer was due.
    #[tokio::test]
    async fn silent_node_is_given_up_before_its_answer_is_due() {
        let (address, silence) = node().await;
        let opened = NodeConnection::open(Transport::Plain, address, 1, Duration::from_secs(120));
        let (mut connection, _) = opened.await.unwrap();
        silence.send(()).unwrap();
        tokio::task::yield_now().await;
        // From here on, only timers end a wait.
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        let lost = connection.request_timestamps(1, TimestampWidth::Bits128).await.unwrap_err();
        assert!(matches!(lost, AttemptErrorKind::Connection(_)), "{lost:?}");
        assert!(begun.elapsed() < ANSWER_TIMEOUT, "{:?}", begun.elapsed());
    }
}
