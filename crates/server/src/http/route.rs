//! What a request is for, and what each answer has.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
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
use crate::http::client::Requests;
use crate::http::cluster::{self, BODY_MAX, BODY_TIME, Change};
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
    Founding,
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
            "/founding" => Self::Founding,
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
    // A connection of the reserve has one request. HTTP/2 has another way to say so.
    let closes = requests.is_reserve && request.version() <= Version::HTTP_11;
    let is_change = matches!(path, Some(Path::Cluster(_))) && request.method() == Method::POST;
    let work = match request.body().is_end_stream() || is_change {
        true => begin(&requests, id, path, request),
        false => Work::Boxed(Box::pin(after_body(Arc::clone(&requests), id, path, request))),
    };
    async move {
        let Requests { shared, client, .. } = &*requests;
        let mut answer = match work {
            Work::Done(answer) => *answer,
            Work::Timestamps(asked) => timestamp::issue(shared, client, id, asked).await,
            Work::Boxed(work) => work.await,
        };
        if is_head {
            *answer.body_mut() = AnswerBody::default();
        }
        let headers = answer.headers_mut();
        if !matches!(path, Some(Path::Cluster(_))) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
            if has_origin {
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
            }
        }
        headers.insert(REQUEST_ID, HeaderValue::from(id));
        if closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
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
    Boxed(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

/// Answers a request behind its body, which nothing looks at. Over HTTP/2 a request may show at its
/// end that it is malformed, and an answer before that would depend on which of the two was faster.
async fn after_body<B>(
    requests: Arc<Requests>,
    id: u64,
    path: Option<Path>,
    request: Request<B>,
) -> Answer
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let (head, body) = request.into_parts();
    let mut body = pin!(Limited::new(body, BODY_MAX));
    let skipped = async { while let Some(Ok(_)) = body.frame().await {} };
    // The answer does not depend on it, also if there is no end.
    drop(tokio::time::timeout(BODY_TIME, skipped).await);
    let Requests { shared, client, .. } = &*requests;
    match begin(&requests, id, path, Request::from_parts(head, Empty::<Bytes>::new())) {
        Work::Done(answer) => *answer,
        Work::Timestamps(asked) => timestamp::issue(shared, client, id, asked).await,
        Work::Boxed(work) => work.await,
    }
}

fn begin<B>(requests: &Arc<Requests>, id: u64, path: Option<Path>, request: Request<B>) -> Work
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let done = |answer| Work::Done(Box::new(answer));
    if !has_one_host(&request) {
        return done(answer::text(StatusCode::BAD_REQUEST, "a request has one Host header"));
    }
    let Some(path) = path else { return done(answer::text(StatusCode::NOT_FOUND, "not found")) };
    if !path.takes(request.method()) {
        let mut answer = answer::text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(path.methods()));
        return done(answer);
    }
    if request.method() == Method::OPTIONS {
        return done(preflight(path));
    }
    let shared = &requests.shared;
    match path {
        Path::Timestamp | Path::Cluster(_) if requests.is_reserve => done(answer::full()),
        Path::Timestamp => Work::Timestamps(Asked::of(shared, &request)),
        Path::Up => done(info::up()),
        Path::Ready => done(info::ready(shared)),
        Path::Founding => done(info::founding(shared)),
        Path::Members | Path::Status | Path::Clock | Path::Metrics => {
            let is_plain = metrics::is_plain(request.headers());
            Work::Boxed(Box::pin(inform(Arc::clone(requests), id, path, is_plain)))
        }
        Path::Cluster(change) => {
            let requests = Arc::clone(requests);
            Work::Boxed(Box::pin(
                async move { cluster::change(&requests, id, change, request).await },
            ))
        }
    }
}

/// A long answer of a node about itself: it may wait for room.
async fn inform(requests: Arc<Requests>, id: u64, path: Path, is_plain: bool) -> Answer {
    let Requests { shared, client, .. } = &*requests;
    match path {
        Path::Members => info::members(shared, client, id).await,
        Path::Status => info::status(shared, client, id).await,
        Path::Clock => info::clock(shared, client, id).await,
        _ => metrics::answer(shared, client, id, is_plain).await,
    }
}

/// Whether a request says which host it is for, as RFC 9112 has it: two nodes on the way of a
/// request might read two hosts differently. HTTP/1.0 may leave it out, and so may HTTP/2 and
/// HTTP/3, which have another place for it.
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

/// What a browser asks before a request of a page of another origin.
fn preflight(path: Path) -> Answer {
    let mut answer = Response::new(AnswerBody::default());
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
