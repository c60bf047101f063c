//! Calls of single nodes over HTTP/1.1, and requests that the leader alone executes.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use esker_oracle::LeaderSearch;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep, timeout};

use crate::address::Address;
use crate::answer::{LEADER_HEADER, excerpt};
use crate::connection_error::{body_error, connection_error, with_port_advice};
use crate::error::{AttemptErrorKind, CallError, Error, with_sources};
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
/// The path that every process answers, and its answer.
const PROBE_PATH: &str = "/up";
const PROBE_ANSWER: &[u8] = b"ok";
/// The body of a change that has all in its path.
const EMPTY_OBJECT: &[u8] = b"{}";

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

    /// Returns the beginning of the body, for errors.
    fn excerpt(&self) -> String {
        excerpt(&self.body, TEXT_CHARS_MAX)
    }
}

/// A request to one node, which is a change unless it is a GET.
#[derive(Debug)]
struct NodeRequest<'a> {
    method: Method,
    path: &'a str,
    /// JSON; empty for a GET.
    body: &'a [u8],
}

impl<'a> NodeRequest<'a> {
    fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, body: b"" }
    }

    fn is_change(&self) -> bool {
        self.method != Method::GET
    }
}

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
    /// [`CallError`] if there is no connection, or no TLS on it.
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
        self.ask(address, &NodeRequest::get(path), patience).await
    }

    /// Has the leader make a change, whose body is JSON. The endpoints and `members` are asked for
    /// the leader, until one answers as leader; one that cannot be reached, or knows no leader, is
    /// asked again. One that denies the change is not: others may have other options.
    ///
    /// The request is sent to one node at a time, and never again after one may have executed it: a
    /// change is made once. It is sent only where a node has just answered `GET /up`, and so is the
    /// token. While one does not answer, the next is tried beside it: a process that is stopped
    /// still accepts connections.
    ///
    /// # Cancel safety
    /// The leader may make the change although the future was dropped.
    ///
    /// # Errors
    /// At once: [`CallError`] of a node that got the request and may still execute it, and the last
    /// [`AttemptErrorKind::Denied`], if all nodes or the leader deny the change. After `patience`,
    /// the last refusal of a node, or the reason why none could be reached.
    pub async fn change(
        &self,
        members: &[String],
        path: &str,
        body: &[u8],
        patience: Duration,
    ) -> Result<NodeAnswer, CallError> {
        let request = NodeRequest { method: Method::POST, path, body };
        self.ask_leader(members, &request, patience).await
    }

    /// Has the leader make a change with `PUT`, as [`NodeCaller::change`] does with `POST`. The
    /// body is an empty object.
    ///
    /// # Cancel safety
    /// The leader may make the change although the future was dropped.
    ///
    /// # Errors
    /// The errors of [`NodeCaller::change`].
    pub async fn put(
        &self,
        members: &[String],
        path: &str,
        patience: Duration,
    ) -> Result<NodeAnswer, CallError> {
        let request = NodeRequest { method: Method::PUT, path, body: EMPTY_OBJECT };
        self.ask_leader(members, &request, patience).await
    }

    /// Has the leader make a change with `DELETE`, as [`NodeCaller::change`] does with `POST`. The
    /// body is an empty object.
    ///
    /// # Cancel safety
    /// The leader may make the change although the future was dropped.
    ///
    /// # Errors
    /// The errors of [`NodeCaller::change`].
    pub async fn delete(
        &self,
        members: &[String],
        path: &str,
        patience: Duration,
    ) -> Result<NodeAnswer, CallError> {
        let request = NodeRequest { method: Method::DELETE, path, body: EMPTY_OBJECT };
        self.ask_leader(members, &request, patience).await
    }

    /// Gets a path of the leader, which [`NodeCaller::change`] would have make a change. No token
    /// is sent.
    ///
    /// # Errors
    /// The errors of [`NodeCaller::change`].
    pub async fn get_from_leader(
        &self,
        members: &[String],
        path: &str,
        patience: Duration,
    ) -> Result<NodeAnswer, CallError> {
        self.ask_leader(members, &NodeRequest::get(path), patience).await
    }

    /// Sends a request to the leader, once one node answers as such.
    async fn ask_leader(
        &self,
        members: &[String],
        request: &NodeRequest<'_>,
        patience: Duration,
    ) -> Result<NodeAnswer, CallError> {
        let deadline = Instant::now() + patience;
        let left = || deadline.saturating_duration_since(Instant::now());
        let nodes: Vec<_> = self.endpoints.iter().chain(members).cloned().collect();
        debug_assert!(!nodes.is_empty(), "a caller has an endpoint");
        let mut search = LeaderSearch::new(nodes);
        let (mut delay, mut probes) = (RETRY_DELAY, FuturesUnordered::new());
        loop {
            if let Some(address) = search.begin_probe() {
                let patience = left();
                probes.push(async move { (self.probe(&address, patience).await, address) });
            }
            debug_assert!(!probes.is_empty(), "a search that continues has a node to wait for");
            let Ok(Some((probed, address))) = timeout(NEXT_NODE_DELAY, probes.next()).await else {
                continue;
            };
            search.end_probe(&address);
            let outcome = match probed {
                Ok(()) if !left().is_zero() => self.send(&address, request, left()).await?,
                Ok(()) => ChangeOutcome::Unreached(no_answer(&address, patience, false)),
                Err(error) => ChangeOutcome::Unreached(error),
            };
            match outcome {
                ChangeOutcome::Answered(answer) => return Ok(answer),
                ChangeOutcome::Refused(error) => search.record_refusal(error),
                ChangeOutcome::Unreached(error) => search.record_failure(error),
                ChangeOutcome::Denied(error) => search.record_denial(address, error)?,
                ChangeOutcome::NotLeader(_, named) if search.is_probed(&named) => {
                    search.record_failure(no_answer(&named, patience, false));
                }
                ChangeOutcome::NotLeader(error, named) => search.follow(error, named)?,
            }
            // The attempt after the wait has as much time as the wait.
            if Instant::now() + delay * 2 >= deadline
                && let Some(error) = search.take_error()
            {
                return Err(error);
            }
            sleep(delay).await;
            delay = (delay * 2).min(RETRY_DELAY_MAX);
        }
    }

    /// Checks that a node answers at this address. No change was asked for after an error.
    async fn probe(&self, address: &str, patience: Duration) -> Result<(), CallError> {
        let answer = self.get(address, PROBE_PATH, patience).await;
        let answer = answer.map_err(|error| CallError { may_still_happen: false, ..error })?;
        let kind = match (answer.status, answer.body.trim_ascii()) {
            (200, PROBE_ANSWER) => return Ok(()),
            (200, _) => {
                AttemptErrorKind::NotANode(format!("it answers GET {PROBE_PATH} otherwise"))
            }
            _ => AttemptErrorKind::Status { status: answer.status, text: answer.excerpt() },
        };
        Err(CallError::new(address, kind, false))
    }

    /// Sends a request for the leader to a node that answers. Fails if the node may have executed
    /// it.
    async fn send(
        &self,
        address: &str,
        request: &NodeRequest<'_>,
        patience: Duration,
    ) -> Result<ChangeOutcome, CallError> {
        let answer = match self.ask(address, request, patience).await {
            Ok(answer) => answer,
            Err(error) if error.may_still_happen => return Err(error),
            Err(error) => return Ok(ChangeOutcome::Unreached(error)),
        };
        let (status, text) = (answer.status, answer.excerpt());
        let error = |kind, may_still_happen| CallError::new(address, kind, may_still_happen);
        match (status, answer.leader.as_deref().and_then(Address::from_node)) {
            (401 | 403, _) => {
                let kind = AttemptErrorKind::Denied { status, text };
                Ok(ChangeOutcome::Denied(error(kind, false)))
            }
            (409, Some(leader)) => {
                let error = error(AttemptErrorKind::NotLeader, false);
                Ok(ChangeOutcome::NotLeader(error, leader.to_string()))
            }
            (503, _) => {
                let kind = AttemptErrorKind::Status { status, text };
                Ok(ChangeOutcome::Refused(error(kind, false)))
            }
            // Only 503 says that nothing was done.
            (500.., _) => Err(error(AttemptErrorKind::Status { status, text }, true)),
            _ => Ok(ChangeOutcome::Answered(answer)),
        }
    }

    /// Asks one node.
    async fn ask(
        &self,
        address: &str,
        request: &NodeRequest<'_>,
        patience: Duration,
    ) -> Result<NodeAnswer, CallError> {
        match timeout(patience, self.exchange(address, request)).await {
            Ok(answered) => answered,
            Err(_) => Err(no_answer(address, patience, true)),
        }
    }

    async fn exchange(
        &self,
        address: &str,
        request: &NodeRequest<'_>,
    ) -> Result<NodeAnswer, CallError> {
        let stream = self.connect(address).await?;
        let failure = stream.failure();
        let call_error = |kind| {
            let may_still_happen = may_have_read(&kind);
            CallError::new(address, kind, may_still_happen)
        };
        let failed = |error| call_error(with_port_advice(connection_error(&failure, &error)));
        let connection = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connection.map_err(failed)?;
        let request = self.encode(address, request);
        let request = request.map_err(|error| {
            CallError::new(address, AttemptErrorKind::Connection(with_sources(&error)), false)
        })?;
        let exchanged = async {
            let (head, body) = sender.send_request(request).await.map_err(failed)?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| call_error(body_error(&failure, &*error)))?;
            match failure.is_of_tls_port() {
                true => Err(call_error(AttemptErrorKind::Tls(TlsError::TlsNode))),
                false => Ok(NodeAnswer::new(&head, body.to_bytes())),
            }
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

    fn encode(
        &self,
        address: &str,
        request: &NodeRequest<'_>,
    ) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let NodeRequest { method, path, body } = request;
        let mut encoded = Request::builder().method(method).uri(*path).header(HOST, address);
        if request.is_change() {
            encoded = encoded.header(CONTENT_TYPE, "application/json");
            if let Some(authorization) = &self.authorization {
                encoded = encoded.header(AUTHORIZATION, authorization);
            }
        }
        encoded.body(Full::new(Bytes::copy_from_slice(body)))
    }
}

/// The outcome of a change that one node got, or did not get.
enum ChangeOutcome {
    Answered(NodeAnswer),
    /// The node did nothing. The same request may succeed later.
    Refused(CallError),
    /// The node did nothing, and never will for this caller.
    Denied(CallError),
    /// The node did nothing, and names the leader.
    NotLeader(CallError, String),
    /// The node did not get the request.
    Unreached(CallError),
}

/// Whether a node may have read the request before the connection failed: not one that refuses the
/// client's certificate, or a request without TLS.
fn may_have_read(kind: &AttemptErrorKind) -> bool {
    use TlsError::{CertificateRefused, CertificateRequired, TlsNode};
    !matches!(kind, AttemptErrorKind::Tls(CertificateRequired | CertificateRefused(_) | TlsNode))
}

fn no_answer(address: &str, patience: Duration, may_still_happen: bool) -> CallError {
    CallError::new(address, AttemptErrorKind::NoAnswer { within: patience }, may_still_happen)
}
