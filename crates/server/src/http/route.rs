//! Routing of requests to their handlers, and the headers of all answers.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Body;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, CONNECTION, HOST, HeaderName,
    HeaderValue, ORIGIN,
};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};

use crate::http::answer::{self, Answer};
use crate::http::body::AnswerBody;
use crate::http::client_connection::ConnectionState;
use crate::http::cluster::{self, ClusterChange};
use crate::http::info;
use crate::http::metrics;
use crate::http::page::{self, PagePart};
use crate::http::sequence;
use crate::http::span::RequestSpan;
use crate::http::timestamp::{self, TimestampRequest};

const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// The headers that scripts of a page of another origin may read.
const EXPOSED_HEADERS: &str = "Esker-Leader, Retry-After, X-Request-Id";
static NEXT_REQUEST_ID: AtomicU64 = AtomicU64::new(1);

/// The paths of the HTTP interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Timestamp,
    Up,
    Ready,
    Members,
    Founding,
    Status,
    Clock,
    Metrics,
    Page(PagePart),
    Cluster(ClusterChange),
    /// `/sequence/NAME`, with any name.
    Sequence,
    Sequences,
}

impl Path {
    fn parse(path: &str) -> Option<Self> {
        Some(match path {
            "/timestamp" => Self::Timestamp,
            "/up" => Self::Up,
            "/ready" => Self::Ready,
            "/members" | "/membership" => Self::Members,
            "/founding" => Self::Founding,
            "/status" => Self::Status,
            "/clock" => Self::Clock,
            "/metrics" => Self::Metrics,
            "/" => Self::Page(PagePart::Document),
            "/page.css" => Self::Page(PagePart::Style),
            "/page.js" => Self::Page(PagePart::Script),
            "/cluster/admit" => Self::Cluster(ClusterChange::Admit),
            "/cluster/add" => Self::Cluster(ClusterChange::Add),
            "/cluster/remove" => Self::Cluster(ClusterChange::Remove),
            "/cluster/transfer" => Self::Cluster(ClusterChange::Transfer),
            "/cluster/follow-clock" => Self::Cluster(ClusterChange::FollowClock),
            "/sequences" => Self::Sequences,
            path if path.starts_with(sequence::PATH_PREFIX) => Self::Sequence,
            _ => return None,
        })
    }

    /// Returns the methods of this path, as in `Allow`.
    fn methods(self) -> &'static str {
        match self {
            Self::Timestamp => "GET, OPTIONS",
            Self::Cluster(_) => "POST",
            Self::Sequence => "POST, PUT, DELETE",
            Self::Up
            | Self::Ready
            | Self::Members
            | Self::Founding
            | Self::Status
            | Self::Clock
            | Self::Metrics
            | Self::Sequences
            | Self::Page(_) => "GET, HEAD, OPTIONS",
        }
    }

    /// Whether scripts of a page of another origin may send its requests, and read the answers.
    fn is_for_pages(self) -> bool {
        !matches!(self, Self::Cluster(_) | Self::Sequence)
    }

    /// Returns the path as spans name it: names of sequences are many.
    fn route(self, path: &str) -> &str {
        match self {
            Self::Sequence => "/sequence/{name}",
            _ => path,
        }
    }

    fn allows(self, method: &Method) -> bool {
        self.methods().split(", ").any(|allowed| allowed == method.as_str())
    }
}

/// Answers a request, however its body is received.
///
/// The part that needs no wait runs before this returns. The future has nothing of the request, so
/// that it is small: it is copied.
pub(crate) fn answer<B>(
    connection: Arc<ConnectionState>,
    request: Request<B>,
) -> impl Future<Output = Answer> + Send + use<B>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let began = Instant::now();
    let id = NEXT_REQUEST_ID.fetch_add(1, Relaxed);
    let is_encrypted = connection.access().is_encrypted;
    connection.node().counters().count_request(request.version(), is_encrypted);
    let log_line =
        tracing::enabled!(tracing::Level::DEBUG).then(|| Box::new(AccessLogLine::new(&request)));
    let path = Path::parse(request.uri().path());
    let span = RequestSpan::start(&request, path.map(|path| path.route(request.uri().path())));
    let is_head = request.method() == Method::HEAD;
    // A browser shows a page of another origin the headers that are exposed, and sends this one.
    let has_origin = request.headers().contains_key(ORIGIN);
    // A connection of the reserve has one request. HTTP/2 ends in another way.
    let closes = connection.is_reserve() && request.version() <= Version::HTTP_11;
    let is_change = matches!(path, Some(Path::Cluster(_))) && request.method() == Method::POST;
    let pending = match request.body().is_end_stream() || is_change {
        true => dispatch(&connection, id, path, request),
        false => boxed(after_body(Arc::clone(&connection), id, path, request)),
    };
    async move {
        let state = connection.node();
        // Not a function of its own: its future would have another copy of `pending`.
        let mut answer = match pending {
            PendingAnswer::Ready(answer) => *answer,
            PendingAnswer::Timestamps(request) => {
                timestamp::issue(state, connection.client(), id, request).await
            }
            PendingAnswer::Boxed(answer) => answer.await,
        };
        if is_head {
            *answer.body_mut() = AnswerBody::default();
        }
        let headers = answer.headers_mut();
        if path.is_none_or(Path::is_for_pages) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
            if has_origin {
                let exposed = HeaderValue::from_static(EXPOSED_HEADERS);
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
            }
        }
        headers.insert(REQUEST_ID_HEADER, HeaderValue::from(id));
        if closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let latency = began.elapsed();
        state.counters().count_answer(path == Some(Path::Timestamp), answer.status(), latency);
        if let Some(log_line) = log_line {
            log_line.write(id, connection.client().from(), latency, &answer);
        }
        if let Some(span) = span {
            span.answered(answer.status());
        }
        answer
    }
}

/// The fields of a request's log line.
struct AccessLogLine {
    method: Method,
    uri: Uri,
    version: Version,
    bytes_in: u64,
}

impl AccessLogLine {
    fn new<B: Body>(request: &Request<B>) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            bytes_in: request.body().size_hint().lower(),
        }
    }

    fn write(&self, id: u64, from: SocketAddr, latency: Duration, answer: &Answer) {
        tracing::debug!(
            id,
            method = %self.method,
            address = %from,
            path = self.uri.path(),
            status = answer.status().as_u16(),
            latency_ns = latency.as_nanos() as u64,
            protocol = ?self.version,
            bytes_in = self.bytes_in,
            bytes_out = answer.body().size_hint().lower(),
            "answered a request"
        );
    }
}

/// An answer that may need a wait.
enum PendingAnswer {
    Ready(Box<Answer>),
    Timestamps(TimestampRequest),
    Boxed(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

impl PendingAnswer {
    fn ready(answer: Answer) -> Self {
        Self::Ready(Box::new(answer))
    }
}

/// Boxes the future of a rare answer, so that the futures of timestamps stay small.
fn boxed<F: Future<Output = Answer> + Send + 'static>(answer: F) -> PendingAnswer {
    PendingAnswer::Boxed(Box::pin(answer))
}

/// Answers a request after its body, which is ignored. Over HTTP/2 a request may turn out to be
/// malformed at its end, and an answer before that would depend on which of the two was faster.
async fn after_body<B>(
    connection: Arc<ConnectionState>,
    id: u64,
    path: Option<Path>,
    request: Request<B>,
) -> Answer
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let (head, body) = request.into_parts();
    cluster::skip_body(body).await;
    let request = Request::from_parts(head, Empty::<Bytes>::new());
    match dispatch(&connection, id, path, request) {
        PendingAnswer::Ready(answer) => *answer,
        PendingAnswer::Timestamps(request) => {
            timestamp::issue(connection.node(), connection.client(), id, request).await
        }
        PendingAnswer::Boxed(answer) => answer.await,
    }
}

/// Starts to answer a request.
fn dispatch<B>(
    connection: &Arc<ConnectionState>,
    id: u64,
    path: Option<Path>,
    request: Request<B>,
) -> PendingAnswer
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let ready = PendingAnswer::ready;
    if !has_one_host(&request) {
        return ready(answer::text(StatusCode::BAD_REQUEST, "a request has one Host header"));
    }
    let Some(path) = path else { return ready(answer::text(StatusCode::NOT_FOUND, "not found")) };
    if !path.allows(request.method()) {
        let mut answer = answer::text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(path.methods()));
        return ready(answer);
    }
    if request.method() == Method::OPTIONS {
        return ready(preflight(path));
    }
    let state = connection.node();
    let shared = || Arc::clone(connection);
    match path {
        Path::Timestamp | Path::Cluster(_) | Path::Sequence | Path::Sequences
            if connection.is_reserve() =>
        {
            ready(answer::over_limit())
        }
        Path::Timestamp => PendingAnswer::Timestamps(TimestampRequest::parse(connection, &request)),
        Path::Up => ready(info::up()),
        Path::Ready => ready(info::ready(state)),
        Path::Founding => ready(info::founding(state)),
        // Long answers may wait for memory.
        Path::Members => {
            let connection = shared();
            boxed(async move { info::members(connection.node(), connection.client()).await })
        }
        Path::Status => {
            let connection = shared();
            boxed(async move { info::status(connection.node(), connection.client()).await })
        }
        Path::Clock => {
            let connection = shared();
            boxed(async move { info::clock(connection.node(), connection.client()).await })
        }
        Path::Page(part) => {
            let connection = shared();
            boxed(async move { page::answer(connection.client(), part).await })
        }
        Path::Metrics => {
            let is_plain = metrics::prefers_plain(request.headers());
            let connection = shared();
            boxed(
                async move { metrics::answer(connection.node(), connection.client(), is_plain).await },
            )
        }
        Path::Cluster(change) => {
            let connection = shared();
            boxed(async move { cluster::change(&connection, id, change, request).await })
        }
        Path::Sequence => {
            let connection = shared();
            boxed(async move { sequence::call(&connection, id, request).await })
        }
        Path::Sequences => {
            let connection = shared();
            boxed(async move { sequence::list(&connection).await })
        }
    }
}

/// Whether a request names one host, as RFC 9112 requires: two proxies might read two hosts
/// differently. HTTP/1.0 may leave the host out, and so may HTTP/2 and HTTP/3, which have another
/// field for it.
fn has_one_host<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => request.version() != Version::HTTP_11,
        (Some(host), None) => {
            // An empty one is for a request without a host.
            host.is_empty()
                || Authority::try_from(host.as_bytes())
                    .is_ok_and(|authority| !authority.as_str().contains('@'))
        }
        (Some(_), Some(_)) => false,
    }
}

/// Answers the question of a browser before a request of a page of another origin.
fn preflight(path: Path) -> Answer {
    let mut answer = Response::new(AnswerBody::default());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let headers = answer.headers_mut();
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(ACCESS_CONTROL_ALLOW_METHODS, path.methods());
    set(ACCESS_CONTROL_ALLOW_HEADERS, "*");
    set(ACCESS_CONTROL_MAX_AGE, "86400");
    answer
}

#[cfg(test)]
mod tests {
    use hyper::body::Incoming;

    use super::*;

    /// The future of a request is copied several times.
    #[test]
    fn a_request_is_small() {
        fn size<R, F: Future>(_: impl Fn(Arc<ConnectionState>, R) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(answer::<Incoming>);
        assert!(size <= 400, "{size} bytes");
    }
}
