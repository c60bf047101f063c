//! What a request is for, and what each answer has.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::Body;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, HeaderName, HeaderValue, ORIGIN,
};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};

use crate::http::answer::{self, Answer};
use crate::http::client::Requests;
use crate::http::cluster::{self, Change};
use crate::http::info;
use crate::http::metrics;
use crate::http::span::RequestSpan;
use crate::http::timestamp::{self, Asked};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// What scripts of a page of another origin may read.
const EXPOSED: &str = "Esker-Leader, Retry-After, X-Request-Id";
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Timestamp,
    Up,
    Ready,
    Members,
    Status,
    Clock,
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
            "/clock" => Self::Clock,
            "/metrics" => Self::Metrics,
            "/cluster/admit" => Self::Cluster(Change::Admit),
            "/cluster/add" => Self::Cluster(Change::Add),
            "/cluster/remove" => Self::Cluster(Change::Remove),
            "/cluster/transfer" => Self::Cluster(Change::Transfer),
            "/cluster/follow-clock" => Self::Cluster(Change::FollowClock),
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
///
/// What needs no wait is done here. The future has nothing of the request, so that it is small: it
/// is copied.
pub(crate) fn answer<B>(
    requests: Arc<Requests>,
    request: Request<B>,
) -> impl Future<Output = Answer> + Send + use<B>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let began = Instant::now();
    let id = NEXT_ID.fetch_add(1, Relaxed);
    requests.shared.counters.requested(request.version());
    let logged = tracing::enabled!(tracing::Level::DEBUG).then(|| Box::new(Logged::of(&request)));
    let path = Path::of(request.uri().path());
    let span = RequestSpan::of(&request, path.map(|_| request.uri().path()));
    let is_head = request.method() == Method::HEAD;
    // A browser shows a page of another origin the headers that are exposed, and sends this one.
    let has_origin = request.headers().contains_key(ORIGIN);
    let work = begin(&requests, id, path, request);
    async move {
        let Requests { shared, client, .. } = &*requests;
        let mut answer = match work {
            Work::Done(answer) => *answer,
            Work::Timestamps(asked) => timestamp::issue(shared, client, id, asked).await,
            Work::Change(change) => change.await,
        };
        if is_head {
            *answer.body_mut() = Full::default();
        }
        let headers = answer.headers_mut();
        if !matches!(path, Some(Path::Cluster(_))) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
            if has_origin {
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
            }
        }
        headers.insert(REQUEST_ID, HeaderValue::from(id));
        let latency = began.elapsed();
        shared.counters.answered(path == Some(Path::Timestamp), answer.status(), latency);
        if let Some(logged) = logged {
            logged.write(id, client.from, latency, &answer);
        }
        if let Some(span) = span {
            span.answered(answer.status());
        }
        answer
    }
}

/// What of a request is logged.
struct Logged {
    method: Method,
    uri: Uri,
    version: Version,
    bytes_in: u64,
}

impl Logged {
    fn of<B: Body>(request: &Request<B>) -> Self {
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

/// What is left to do for a request.
enum Work {
    Done(Box<Answer>),
    Timestamps(Asked),
    Change(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

fn begin<B>(requests: &Arc<Requests>, id: u64, path: Option<Path>, request: Request<B>) -> Work
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let done = |answer| Work::Done(Box::new(answer));
    let Some(path) = path else { return done(answer::text(StatusCode::NOT_FOUND, "not found")) };
    if !path.takes(request.method()) {
        let mut answer = answer::text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(path.methods()));
        return done(answer);
    }
    if request.method() == Method::OPTIONS {
        return done(preflight(path));
    }
    let Requests { shared, client, .. } = &**requests;
    match path {
        Path::Timestamp => Work::Timestamps(Asked::of(shared, &request)),
        Path::Up => done(info::up()),
        Path::Ready => done(info::ready(shared)),
        Path::Members => done(info::members(shared, client, id)),
        Path::Status => done(info::status(shared, client, id)),
        Path::Clock => done(info::clock(shared, client, id)),
        Path::Metrics => {
            let is_plain = metrics::is_plain(request.headers());
            done(metrics::answer(shared, client, id, is_plain))
        }
        Path::Cluster(change) => {
            let requests = Arc::clone(requests);
            Work::Change(Box::pin(
                async move { cluster::change(&requests, id, change, request).await },
            ))
        }
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
    say(ACCESS_CONTROL_MAX_AGE, "86400");
    answer
}

#[cfg(test)]
mod tests {
    use hyper::body::Incoming;

    use super::*;

    /// The future of a request is copied several times.
    #[test]
    fn a_request_is_small() {
        fn size<R, F: Future>(_: impl Fn(Arc<Requests>, R) -> F) -> usize {
            size_of::<F>()
        }
        let size = size(answer::<Incoming>);
        assert!(size <= 400, "{size} bytes");
    }
}
