//! A connection to a node: HTTP/2 without TLS.

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
use crate::answer::{Answer, Received, beginning_of};
use crate::connect::connect;
use crate::error::CauseKind;
use crate::members::Members;

const LEADER: HeaderName = HeaderName::from_static("esker-leader");
/// The most bytes of an answer to a request for timestamps, and for members.
const BODY_MAX: usize = 4 << 10;
const MEMBERS_MAX: usize = 1 << 20;
const HEADERS_MAX: u32 = 16 << 10;
/// A node answers within a second, also when it cannot serve.
const ANSWER: Duration = Duration::from_millis(1500);
/// While a request waits: how often the peer is asked whether it is there, and how long it may take
/// to say so.
const PING: Duration = Duration::from_millis(200);
const PING_ANSWER: Duration = Duration::from_millis(300);

/// A connection. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    /// No other connection of the client has this number.
    pub(crate) serial: u64,
    pub(crate) address: Address,
    sender: SendRequest<Empty<Bytes>>,
}

impl Link {
    /// Connects, and asks for the members of the cluster.
    pub(crate) async fn open(
        address: Address,
        serial: u64,
        patience: Duration,
    ) -> Result<(Self, Members), CauseKind> {
        let opened = timeout(patience, async {
            let stream = connect(address.as_str()).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            let mut builder = Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).max_header_list_size(HEADERS_MAX);
            builder.keep_alive_interval(PING).keep_alive_timeout(PING_ANSWER);
            let shaken = builder.handshake(TokioIo::new(stream)).await;
            let (sender, connection) = shaken.map_err(failed).map_err(no_node)?;
            // It ends with its last sender; what fails there fails the requests, too.
            tokio::spawn(async move { drop(connection.await) });
            let mut link = Self { serial, address, sender };
            let (head, body) = link.get("/members", MEMBERS_MAX).await.map_err(no_node)?;
            // As a node that waits for its cluster.
            if head.status == StatusCode::SERVICE_UNAVAILABLE {
                return Err(CauseKind::Status(head.status.as_u16(), beginning_of(&body)));
            }
            let members = Members::parse(&body).filter(|_| head.status == StatusCode::OK);
            let members = members
                .ok_or_else(|| CauseKind::NoNode("its answer is no list of members".into()))?;
            Ok((link, members))
        });
        opened.await.unwrap_or(Err(CauseKind::NoAnswer(patience)))
    }

    /// Whether the connection takes no more requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Asks for so many timestamps.
    pub(crate) async fn timestamps(&mut self, count: u32) -> Result<Answer, CauseKind> {
        let path = format!("/timestamp?n={count}&format=range");
        let answered = timeout(ANSWER, self.get(&path, BODY_MAX)).await;
        let (head, body) = answered.unwrap_or(Err(CauseKind::NoAnswer(ANSWER)))?;
        let header = |name| head.headers.get(name)?.to_str().ok();
        let received = Received {
            status: head.status.as_u16(),
            leader: header(LEADER),
            retry_after: header(RETRY_AFTER),
            body: &body,
        };
        Ok(received.classify(count))
    }

    async fn get(&mut self, path: &str, most: usize) -> Result<(Parts, Bytes), CauseKind> {
        let request = Request::get(format!("http://{}{path}", self.address)).body(Empty::new());
        let request = request.map_err(failed)?;
        self.sender.ready().await.map_err(failed)?;
        let (head, body) = self.sender.send_request(request).await.map_err(failed)?.into_parts();
        let body = Limited::new(body, most).collect().await;
        let body = body.map_err(|error| CauseKind::Connection(error.to_string()))?.to_bytes();
        Ok((head, body))
    }
}

/// A connection was made, and ended before the first answer over it.
fn no_node(cause: CauseKind) -> CauseKind {
    match cause {
        CauseKind::Connection(why) => CauseKind::NoNode(why),
        other => other,
    }
}

/// A failed connection, with what is below the error.
fn failed(error: impl std::error::Error) -> CauseKind {
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        why = format!("{why}: {error}");
        source = error.source();
    }
    CauseKind::Connection(why)
}
