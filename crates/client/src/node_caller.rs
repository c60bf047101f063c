//! Calls of single nodes over HTTP/1.1, and changes, which the leader makes.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep, timeout};

use crate::address::Address;
use crate::answer::excerpt;
use crate::connection::{LEADER_HEADER, failed};
use crate::error::{AttemptError, AttemptErrorKind, Error};
use crate::tls_error::TlsError;
use crate::tls_options::TlsOptions;
use crate::transport::{NodeStream, Transport};

const HTTP1: &[u8] = b"http/1.1";
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// The wait before another attempt. It doubles with each.
const RETRY_DELAY: Duration = Duration::from_millis(20);
const RETRY_DELAY_MAX: Duration = Duration::from_millis(300);
/// The time that one node has to answer before another is asked beside it.
const NEXT_NODE_DELAY: Duration = Duration::from_secs(1);
/// The most characters of a refusal that are kept.
const TEXT_CHARS_MAX: usize = 1000;
/// The path that every process answers.
const PROBE_PATH: &str = "/up";

const _: () = assert!(RETRY_DELAY.as_millis() <= RETRY_DELAY_MAX.as_millis());

/// The answer of a node.
#[derive(Debug, Clone)]
pub struct NodeAnswer {
    /// The status.
    pub status: u16,
    /// The body, at most 4 MiB.
    pub body: Bytes,
    leader: Option<String>,
}

impl NodeAnswer {
    fn new(head: &Parts, body: Bytes) -> Self {
        let leader = head.headers.get(LEADER_HEADER).and_then(|leader| leader.to_str().ok());
        Self { status: head.status.as_u16(), body, leader: leader.map(ToOwned::to_owned) }
    }

    /// Returns the body as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).trim().to_owned()
    }
}

/// The error of a call without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// The node, and the kind of the error. The address is empty if no node is known.
    pub attempt: AttemptError,
    /// Whether the node may have executed the request, or may still execute it.
    pub may_still_happen: bool,
}

impl CallError {
    fn new(address: &str, kind: AttemptErrorKind, may_still_happen: bool) -> Self {
        Self { attempt: AttemptError { address: address.to_owned(), kind }, may_still_happen }
    }

    fn connection(address: &str, error: &dyn std::error::Error, may_still_happen: bool) -> Self {
        Self::new(address, AttemptErrorKind::Connection(error.to_string()), may_still_happen)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.attempt)
    }
}

impl std::error::Error for CallError {}

/// Calls nodes, each over a connection of its own, on the caller's tokio runtime.
#[derive(Debug, Clone)]
pub struct NodeCaller {
    endpoints: Vec<String>,
    transport: Transport,
    authorization: Option<HeaderValue>,
}

impl NodeCaller {
    /// Creates a caller of these nodes, and of others that they name: see
    /// [`ClientBuilder::endpoint`](crate::ClientBuilder::endpoint) and
    /// [`ClientBuilder::tls`](crate::ClientBuilder::tls).
    ///
    /// # Errors
    /// The errors of [`ClientBuilder::build`](crate::ClientBuilder::build) for endpoints and TLS.
    pub fn new(
        endpoints: impl IntoIterator<Item = impl Into<String>>,
        tls: Option<TlsOptions>,
    ) -> Result<Self, Error> {
        let endpoints = endpoints.into_iter().map(Into::into).collect();
        let (transport, addresses) = Transport::to_endpoints(endpoints, tls, HTTP1)?;
        let endpoints = addresses.iter().map(ToString::to_string).collect();
        Ok(Self { endpoints, transport, authorization: None })
    }

    /// Sends this bearer token with each change.
    ///
    /// # Errors
    /// [`Error::InvalidToken`].
    pub fn token(mut self, token: &str) -> Result<Self, Error> {
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::InvalidToken);
        }
        let header = HeaderValue::try_from(format!("Bearer {token}"));
        let mut header = header.map_err(|_| Error::InvalidToken)?;
        header.set_sensitive(true);
        self.authorization = Some(header);
        Ok(self)
    }

    /// Returns the host and port of each endpoint.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Connects to the node at this address, host and port, for requests of HTTP/1.1 that are not
    /// those of this type. The caller sets the deadline.
    ///
    /// # Errors
    /// Why there is no connection, or no TLS.
    pub async fn connect(&self, address: &str) -> Result<NodeStream, CallError> {
        let unsent = |kind| CallError::new(address, kind, false);
        let Some((_, parsed)) = Address::from_endpoint(address) else {
            let why = "this is not the host:port of one host".into();
            return Err(unsent(AttemptErrorKind::Connection(why)));
        };
        self.transport.connect(&parsed).await.map_err(unsent)
    }

    /// Gets a path of the node at this address, host and port.
    ///
    /// # Errors
    /// [`CallError`] if there is no answer within `patience`.
    pub async fn get(
        &self,
        address: &str,
        path: &str,
        patience: Duration,
    ) -> Result<NodeAnswer, CallError> {
        self.ask(address, path, None, patience).await
    }

    /// Has the leader make a change, whose body is JSON. The endpoints and `members` are asked for
    /// the leader, until one answers as leader; one that cannot be reached, or knows no leader, is
    /// asked again.
    ///
    /// The request is sent to one node at a time, and never again after one may have executed it: a
    /// change is made once. So a node is asked whether it answers before it gets the request. While
    /// one does not, the next is tried beside it: a process that is stopped still accepts
    /// connections.
    ///
    /// # Cancel safety
    /// The leader may make the change although the future was dropped.
    ///
    /// # Errors
    /// At once: [`CallError`] of a node that got the request and may still execute it, and
    /// [`AttemptErrorKind::Denied`]. After `patience`, the last refusal of a node, or the reason
    /// why none could be reached.
    pub async fn change(
        &self,
        members: &[String],
        path: &str,
        body: &[u8],
        patience: Duration,
    ) -> Result<NodeAnswer, CallError> {
        let nodes: Vec<_> = self.endpoints.iter().chain(members).collect();
        let deadline = Instant::now() + patience;
        let left = || deadline.saturating_duration_since(Instant::now());
        let (mut delay, mut turn) = (RETRY_DELAY, 0);
        let mut probes = FuturesUnordered::new();
        // The addresses of `probes`.
        let mut waiting = BTreeSet::new();
        let mut leader: Option<String> = None;
        // A refusal says more than that a node cannot be reached.
        let (mut refusal, mut failure) = (None, None);
        loop {
            let mut others = nodes.iter().cycle().skip(turn % nodes.len()).take(nodes.len());
            turn += 1;
            debug_assert_eq!(probes.len(), waiting.len(), "each probe waits for one address");
            let next = leader.take();
            let next = next
                .or_else(|| others.find(|node| !waiting.contains(**node)).map(|it| it.to_string()));
            if let Some(address) = next.filter(|address| waiting.insert(address.clone())) {
                let patience = left();
                probes
                    .push(async move { (self.get(&address, PROBE_PATH, patience).await, address) });
            }
            let Ok(Some((probed, address))) = timeout(NEXT_NODE_DELAY, probes.next()).await else {
                continue;
            };
            waiting.remove(&address);
            let outcome = match probed {
                Ok(_) if !left().is_zero() => self.send(&address, path, body, left()).await?,
                Ok(_) => Outcome::Unreached(no_answer(&address, patience, false)),
                Err(CallError { attempt, .. }) => {
                    Outcome::Unreached(CallError { attempt, may_still_happen: false })
                }
            };
            match outcome {
                Outcome::Answered(answer) => return Ok(answer),
                Outcome::Refused(error) => refusal = Some(error),
                Outcome::Unreached(error) => failure = Some(error),
                Outcome::NotLeader(_, named) if waiting.contains(&named) => {
                    failure = Some(no_answer(&named, patience, false));
                }
                Outcome::NotLeader(error, named) => {
                    failure = Some(error);
                    leader = Some(named);
                }
            }
            if Instant::now() + delay >= deadline
                && let Some(error) = refusal.take().or_else(|| failure.take())
            {
                return Err(error);
            }
            sleep(delay).await;
            delay = (delay * 2).min(RETRY_DELAY_MAX);
        }
    }

    /// Sends a change to a node that answers. Fails if the node denies it, or may have executed it.
    async fn send(
        &self,
        address: &str,
        path: &str,
        body: &[u8],
        patience: Duration,
    ) -> Result<Outcome, CallError> {
        let answer = match self.ask(address, path, Some(body), patience).await {
            Ok(answer) => answer,
            Err(error) if error.may_still_happen => return Err(error),
            Err(error) => return Ok(Outcome::Unreached(error)),
        };
        let status = answer.status;
        let error = |kind: fn(u16, String) -> AttemptErrorKind, may_still_happen| {
            CallError::new(
                address,
                kind(status, excerpt(&answer.body, TEXT_CHARS_MAX)),
                may_still_happen,
            )
        };
        match (status, answer.leader.as_deref().and_then(Address::from_node)) {
            (401 | 403, _) => Err(error(AttemptErrorKind::Denied, false)),
            (409, Some(leader)) => {
                let error = CallError::new(address, AttemptErrorKind::NotLeader, false);
                Ok(Outcome::NotLeader(error, leader.to_string()))
            }
            (503, _) => Ok(Outcome::Refused(error(AttemptErrorKind::Status, false))),
            // Only 503 says that nothing was done.
            (500.., _) => Err(error(AttemptErrorKind::Status, true)),
            _ => Ok(Outcome::Answered(answer)),
        }
    }

    /// Asks one node. A request with a body is a change.
    async fn ask(
        &self,
        address: &str,
        path: &str,
        body: Option<&[u8]>,
        patience: Duration,
    ) -> Result<NodeAnswer, CallError> {
        match timeout(patience, self.exchange(address, path, body)).await {
            Ok(answered) => answered,
            Err(_) => Err(no_answer(address, patience, true)),
        }
    }

    async fn exchange(
        &self,
        address: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<NodeAnswer, CallError> {
        let stream = self.connect(address).await?;
        let failure = stream.failure();
        // A node that refuses the client's certificate does not read the request.
        let failed = |error| {
            let kind = match failed(&failure, error) {
                AttemptErrorKind::Connection(_) => AttemptErrorKind::NotANode(NOT_HTTP.into()),
                kind => kind,
            };
            let is_refused = matches!(
                kind,
                AttemptErrorKind::Tls(
                    TlsError::CertificateRequired | TlsError::CertificateRefused(_)
                )
            );
            CallError::new(address, kind, !is_refused)
        };
        let connection = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connection.map_err(failed)?;
        let request = self.request(address, path, body);
        let request = request.map_err(|error| CallError::connection(address, &error, false))?;
        let exchanged = async {
            let (head, body) = sender.send_request(request).await.map_err(failed)?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| CallError::connection(address, &*error, true))?;
            Ok(NodeAnswer::new(&head, body.to_bytes()))
        };
        let mut exchanged = pin!(exchanged);
        // The connection ends with the exchange.
        tokio::select! {
            biased;
            exchanged = &mut exchanged => exchanged,
            // It may end with the answer, and not as it should.
            ended = connection => exchanged.await.map_err(|lost| ended.err().map_or(lost, failed)),
        }
    }

    fn request(
        &self,
        address: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut request = Request::builder().uri(path).header(HOST, address);
        if body.is_some() {
            request = request.method(Method::POST).header(CONTENT_TYPE, "application/json");
            if let Some(authorization) = &self.authorization {
                request = request.header(AUTHORIZATION, authorization);
            }
        }
        request.body(Full::new(body.map_or_else(Bytes::new, Bytes::copy_from_slice)))
    }
}

/// The reason of a connection that speaks no HTTP.
const NOT_HTTP: &str = "the connection ended without an answer; is it the address for clients?";

/// The outcome of a change that one node got, or did not get.
enum Outcome {
    Answered(NodeAnswer),
    /// The node did nothing. The same request may succeed later.
    Refused(CallError),
    /// The node did nothing, and names the leader.
    NotLeader(CallError, String),
    /// The node did not get the request.
    Unreached(CallError),
}

fn no_answer(address: &str, patience: Duration, may_still_happen: bool) -> CallError {
    CallError::new(address, AttemptErrorKind::NoAnswer(patience), may_still_happen)
}
