//! The listener of a node that waits for its cluster. It answers the other nodes that it waits, and
//! all others why.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinSet};

use crate::call::PROBE_ANSWER;
use crate::error::ServerError;
use crate::http::answer::{self, Answer};
use crate::http::listener::ACCEPT_RETRY_DELAY;
use crate::port;
use crate::protocol::FoundingStatus;
use crate::tls::PortTls;

/// The most connections at a time. For one more, the oldest is closed: nodes send their request at
/// once, and a client that does not cannot keep them out.
const CONNECTIONS_MAX: usize = 64;
/// The time that a connection may take, for all its requests.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The answers of a node that waits for its cluster.
#[derive(Debug)]
pub(crate) struct FoundingListener {
    /// The encoded status of the node.
    status: Bytes,
    /// The reason why it waits.
    reason: Mutex<String>,
}

impl FoundingListener {
    /// Creates the answers of a node with this status.
    pub(crate) fn new(status: &FoundingStatus) -> Result<Arc<Self>, ServerError> {
        let status = status.encode().map_err(ServerError::internal)?;
        let reason = "it asks the other nodes of --cluster".to_owned();
        Ok(Arc::new(Self { status, reason: reason.into() }))
    }

    /// Sets the reason why the node waits.
    pub(crate) fn set_reason(&self, why: &str) {
        why.clone_into(&mut self.reason.lock());
    }

    fn answer<B>(&self, request: &Request<B>) -> Answer {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/up" if is_read => answer::text(StatusCode::OK, PROBE_ANSWER),
            "/founding" if is_read => answer::short_json(self.status.clone()),
            "/ready" if is_read => {
                let why = format!("waits for its cluster: {}", self.reason.lock());
                answer::text(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
            _ => answer::unavailable("this node waits for its cluster; GET /ready says why"),
        }
    }

    /// Answers on this port until `decided` is ready, and returns its output.
    pub(crate) async fn answer_until<T>(
        self: &Arc<Self>,
        port: &TcpListener,
        tls: &Arc<PortTls>,
        decided: impl Future<Output = Result<T, ServerError>>,
    ) -> Result<T, ServerError> {
        port::listen(port, "--listen")?;
        let failed = |error| ServerError::Io("no listener for other nodes".into(), error);
        let port = port.try_clone().and_then(tokio::net::TcpListener::from_std).map_err(failed)?;
        tokio::select! {
            biased;
            decided = decided => decided,
            never = self.serve(port, tls) => match never {},
        }
    }

    async fn serve(
        self: &Arc<Self>,
        port: tokio::net::TcpListener,
        tls: &Arc<PortTls>,
    ) -> Infallible {
        // They end with this future.
        let mut connections = JoinSet::new();
        let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let Ok((stream, from)) = port.accept().await else {
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            oldest_first.retain(|connection| !connection.is_finished());
            if connections.len() == CONNECTIONS_MAX {
                if let Some(oldest) = oldest_first.pop_front() {
                    oldest.abort();
                }
                connections.join_next().await;
            }
            debug_assert!(connections.len() < CONNECTIONS_MAX, "connections are bounded");
            let (listener, tls) = (Arc::clone(self), Arc::clone(tls));
            let serving = async move {
                let Some(accepted) = tls.accept(stream, from, true).await else { return };
                let answer = service_fn(move |request| {
                    let answer = listener.answer(&request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let mut builder = Builder::new(TokioExecutor::new());
                builder.http1().keep_alive(false).half_close(true);
                // The client sees the failure, if it is there.
                drop(builder.serve_connection(TokioIo::new(accepted.stream), answer).await);
            };
            let connection = connections.spawn(async move {
                drop(tokio::time::timeout(CONNECTION_TIMEOUT, serving).await);
            });
            oldest_first.push_back(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;

    use super::*;

    /// As many idle connections as there may be kept the other nodes from the answer, and so the
    /// cluster from being founded, for as long as they came back.
    #[tokio::test(start_paused = true)]
    async fn idle_connections_keep_no_answer_from_other_nodes() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        port.set_nonblocking(true).unwrap();
        let address = port.local_addr().unwrap();
        let status = FoundingStatus {
            node: 1,
            cluster: String::new(),
            nodes: Vec::new(),
            is_founded: false,
        };
        let listener = FoundingListener::new(&status).unwrap();
        // The clock stands still meanwhile: no connection ends by its time.
        let asked = tokio::task::spawn_blocking(move || {
            let connect = || {
                let stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                stream
            };
            let mut idle: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect()).collect();
            let mut node = connect();
            node.write_all(b"GET /founding HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
            let mut answer = String::new();
            node.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert_eq!(idle[0].read(&mut [0]).unwrap(), 0, "the oldest is closed");
            for stream in &mut idle[1..] {
                stream.set_nonblocking(true).unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            }
        });
        let asked = async { Ok(asked.await) };
        let tls = PortTls::new(None, None, None, true, Arc::default()).unwrap();
        let tls = Arc::new(tls);
        listener.answer_until(&port, &tls, asked).await.unwrap().unwrap();
    }
}
