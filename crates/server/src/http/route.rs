//! What a request is for, and what each answer has.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use http_body_util::Full;
use hyper::body::Body;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, HeaderName, HeaderValue,
};
use hyper::{Method, Request, Response, StatusCode};

use crate::http::answer::{self, Answer};
use crate::http::cluster::{self, Change};
use crate::http::info;
use crate::http::timestamp::{self, Asked};
use crate::shared::Shared;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Timestamp,
    Up,
    Ready,
    Members,
    Status,
    Metrics,
    Cluster(Change),
}

impl Path {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/timestamp" => Self::Timestamp,
            "/up" => Self::Up,
            "/ready" => Self::Ready,
            "/members" | "/membership" => Self::Members,
            "/status" => Self::Status,
            "/metrics" => Self::Metrics,
            "/cluster/admit" => Self::Cluster(Change::Admit),
            "/cluster/add" => Self::Cluster(Change::Add),
            "/cluster/remove" => Self::Cluster(Change::Remove),
            "/cluster/transfer" => Self::Cluster(Change::Transfer),
            _ => return None,
        })
    }

    /// The methods that it takes, as in `Allow`.
    fn methods(self) -> &'static str {
        match self {
            Self::Timestamp => "GET, OPTIONS",
            Self::Cluster(_) => "POST",
            _ => "GET, HEAD, OPTIONS",
        }
    }

    fn takes(self, method: &Method) -> bool {
        self.methods().split(", ").any(|one| one == method.as_str())
    }
}

/// Answers a request, however its body is received.
pub(crate) async fn answer<B>(shared: &Shared, from: SocketAddr, request: Request<B>) -> Answer
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let began = Instant::now();
    let id = NEXT_ID.fetch_add(1, Relaxed);
    // Read first: answering may take the request.
    let logged = tracing::enabled!(tracing::Level::DEBUG).then(|| {
        let bytes_in = request.body().size_hint().lower();
        (request.method().clone(), request.uri().clone(), request.version(), bytes_in)
    });
    let path = Path::of(request.uri().path());
    shared.counters.requested(request.version());
    let is_head = request.method() == Method::HEAD;
    let mut answer = dispatch(shared, id, path, request).await;
    if is_head {
        *answer.body_mut() = Full::default();
    }
    let headers = answer.headers_mut();
    if !matches!(path, Some(Path::Cluster(_))) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    headers.insert(REQUEST_ID, HeaderValue::from(id));
    let latency = began.elapsed();
    shared.counters.answered(path == Some(Path::Timestamp), answer.status(), latency);
    if let Some((method, uri, version, bytes_in)) = logged {
        tracing::debug!(
            id,
            %method,
            address = %from,
            path = uri.path(),
            status = answer.status().as_u16(),
            latency_ns = latency.as_nanos() as u64,
            protocol = ?version,
            bytes_in,
            bytes_out = answer.body().size_hint().lower(),
            "answered a request"
        );
    }
    answer
}

async fn dispatch<B>(shared: &Shared, id: u64, path: Option<Path>, request: Request<B>) -> Answer
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Some(path) = path else { return answer::text(StatusCode::NOT_FOUND, "not found") };
    if !path.takes(request.method()) {
        let mut answer = answer::text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(path.methods()));
        return answer;
    }
    if request.method() == Method::OPTIONS {
        return preflight(path);
    }
    match path {
        Path::Timestamp => {
            let (uri, headers) = (request.uri(), request.headers());
            let asked = Asked { query: uri.query(), headers, version: request.version() };
            timestamp::issue(shared, id, asked).await
        }
        Path::Up => info::up(),
        Path::Ready => info::ready(shared),
        Path::Members => info::members(shared, id),
        Path::Status => info::status(shared, id),
        Path::Metrics => info::metrics(shared, id),
        // Apart, so that the futures of all other requests stay small: they are copied.
        Path::Cluster(change) => Box::pin(cluster::change(shared, id, change, request)).await,
    }
}

/// What a browser asks before a request of a page of another origin.
fn preflight(path: Path) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let headers = answer.headers_mut();
    let mut say = |name, value| headers.insert(name, HeaderValue::from_static(value));
    say(ACCESS_CONTROL_ALLOW_METHODS, path.methods());
    say(ACCESS_CONTROL_ALLOW_HEADERS, "*");
    say(ACCESS_CONTROL_EXPOSE_HEADERS, "Esker-Leader, Retry-After, X-Request-Id");
    say(ACCESS_CONTROL_MAX_AGE, "86400");
    answer
}
