//! What a node answers while it waits for its cluster: to the other nodes, that it waits, and to
//! all others why.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::error::ServerError;
use crate::http::answer::{self, Answer};
use crate::port;
use crate::protocol::FoundingStatus;

/// Connections at a time. More wait in the backlog of the listener.
const CONNECTIONS_MAX: usize = 64;
/// How long a connection may take, for all its requests.
const CONNECTION_TIME: Duration = Duration::from_secs(5);
/// After a failure to accept: no file descriptors, mostly.
const AGAIN: Duration = Duration::from_millis(50);

/// The answers of a waiting node.
#[derive(Debug)]
pub(crate) struct Waiting {
    status: FoundingStatus,
    why: Mutex<String>,
}

impl Waiting {
    /// The answers of a node with this status.
    pub(crate) fn new(status: FoundingStatus) -> Arc<Self> {
        Arc::new(Self { status, why: Mutex::default() })
    }

    /// From now on the node waits because of this.
    pub(crate) fn set(&self, why: &str) {
        why.clone_into(&mut self.why.lock());
    }

    fn answer<B>(&self, request: &Request<B>) -> Answer {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/up" if is_read => answer::text(StatusCode::OK, "ok"),
            "/founding" if is_read => answer::founding(&self.status),
            "/ready" if is_read => {
                let why = format!("waits for its cluster: {}", self.why.lock());
                answer::text(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
            _ => answer::unavailable("this node waits for its cluster; GET /ready says why"),
        }
    }

    /// Answers on this port until `decided` is, and returns that.
    pub(crate) async fn answer_until<T>(
        self: &Arc<Self>,
        port: &TcpListener,
        decided: impl Future<Output = Result<T, ServerError>>,
    ) -> Result<T, ServerError> {
        port::listen(port, "--listen")?;
        let failed = |error| ServerError::Io("no listener for other nodes".into(), error);
        let port = port.try_clone().and_then(tokio::net::TcpListener::from_std).map_err(failed)?;
        tokio::select! {
            biased;
            decided = decided => decided,
            never = self.serve(port) => match never {},
        }
    }

    async fn serve(self: &Arc<Self>, port: tokio::net::TcpListener) -> Infallible {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        // They end with this future.
        let mut connections = JoinSet::new();
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            while connections.try_join_next().is_some() {}
            let Ok((stream, _)) = port.accept().await else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            let waiting = Arc::clone(self);
            connections.spawn(async move {
                let answer = service_fn(move |request| {
                    let answer = waiting.answer(&request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let mut builder = Builder::new(TokioExecutor::new());
                builder.http1().keep_alive(false).half_close(true);
                let serving = builder.serve_connection(TokioIo::new(stream), answer);
                // The client learns what failed, if it is there.
                drop(tokio::time::timeout(CONNECTION_TIME, serving).await);
                drop(place);
            });
        }
    }
}
