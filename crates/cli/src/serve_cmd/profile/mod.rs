//! CPU profiles of the process, on a port of their own.

mod encoding;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};

use esker_command::exit::{Failure, Outcome};

/// Connections at a time; more wait.
const CONNECTIONS_MAX: usize = 8;
/// How long the header of a request may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may take, with the longest profile.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Samples a second of each processor that is busy: not 100, which timers of 10 ms keep step with.
const SAMPLES_PER_SECOND: i32 = 99;
/// How long a profile may take, and takes unless the request says it.
const SECONDS: RangeInclusive<u64> = 1..=60;
const DEFAULT_SECONDS: u64 = 10;
const HELP: &str = "GET /debug/pprof/profile?seconds=N: a CPU profile of the next N seconds, \
                    1 to 60, for go tool pprof\n";

type Answer = Response<Full<Bytes>>;

/// The port, which takes no connections before [`serve`].
#[derive(Debug)]
pub struct Port(std::net::TcpListener);

impl Port {
    /// Fails if another process has it.
    pub fn bind(address: SocketAddr) -> Outcome<Self> {
        let bound = std::net::TcpListener::bind(address)
            .and_then(|port| port.set_nonblocking(true).map(|()| port));
        let what = format!("cannot listen on {address} (--profile-listen)");
        bound.map(Self).map_err(|error| Failure::from_io(&what, &error))
    }

    /// Answers requests, one profile at a time, until it is dropped.
    pub async fn serve(self) {
        let listener = match TcpListener::from_std(self.0) {
            Ok(listener) => listener,
            Err(error) => return tracing::warn!(%error, "no profiles are served"),
        };
        let (places, turn) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Arc::new(Mutex::new(())));
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                continue;
            };
            let turn = Arc::clone(&turn);
            tokio::spawn(async move {
                let answer = service_fn(move |request| {
                    let turn = Arc::clone(&turn);
                    async move { Ok::<_, Infallible>(answer(&request, turn).await) }
                });
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).keep_alive(false);
                // An error is the client's.
                let connection = http.serve_connection(TokioIo::new(stream), answer);
                let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
                drop(place);
            });
        }
    }
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    answer
}

async fn answer(request: &Request<Incoming>, turn: Arc<Mutex<()>>) -> Answer {
    if request.method() != Method::GET {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return answer;
    }
    match request.uri().path() {
        "/" => text(StatusCode::OK, HELP),
        "/debug/pprof/profile" => {
            let Some(seconds) = seconds(request.uri().query()) else {
                return text(StatusCode::BAD_REQUEST, "seconds: a number from 1 to 60\n");
            };
            let Ok(turn) = turn.try_lock_owned() else {
                return text(StatusCode::CONFLICT, "another profile is being taken\n");
            };
            profile(seconds, turn).await
        }
        _ => text(StatusCode::NOT_FOUND, HELP),
    }
}

fn seconds(query: Option<&str>) -> Option<u64> {
    let Some(query) = query else { return Some(DEFAULT_SECONDS) };
    let seconds = query.strip_prefix("seconds=")?.parse().ok()?;
    SECONDS.contains(&seconds).then_some(seconds)
}

/// Takes a profile. It ends early if the client does not wait for it.
async fn profile(seconds: u64, turn: OwnedMutexGuard<()>) -> Answer {
    let profiler = pprof::ProfilerGuardBuilder::default()
        .frequency(SAMPLES_PER_SECOND)
        // A signal inside of these cannot follow the stack safely.
        .blocklist(&["libc", "libgcc", "pthread", "vdso"])
        .build();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    // Finding the names takes a while.
    let taken = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        Ok::<_, pprof::Error>(encoding::encode(&profiler?.report().build()?, SAMPLES_PER_SECOND))
    });
    match taken.await {
        Ok(Ok(bytes)) => {
            let mut answer = Response::new(Full::new(Bytes::from(bytes)));
            let kind = HeaderValue::from_static("application/octet-stream");
            answer.headers_mut().insert(CONTENT_TYPE, kind);
            answer
        }
        Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_bounds() {
        assert_eq!((seconds(None), seconds(Some("seconds=60"))), (Some(10), Some(60)));
        for wrong in ["", "seconds=", "seconds=0", "seconds=61", "seconds=-1", "n=5", "seconds=1.5"]
        {
            assert_eq!(seconds(Some(wrong)), None, "{wrong}");
        }
    }
}
