//! What a node answers while it waits for its cluster: to the other nodes, that it waits, and to
//! all others why.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinSet};

use crate::error::ServerError;
use crate::http::answer::{self, Answer};
use crate::port;
use crate::protocol::FoundingStatus;

/// Connections at a time. For one more, the oldest is closed: nodes ask at once, and a client that
/// does not keeps no place from them.
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
        // They end with this future.
        let mut connections = JoinSet::new();
        let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let Ok((stream, _)) = port.accept().await else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            oldest_first.retain(|connection| !connection.is_finished());
            if connections.len() == CONNECTIONS_MAX
                && let Some(oldest) = oldest_first.pop_front()
            {
                oldest.abort();
                connections.join_next().await;
            }
            let waiting = Arc::clone(self);
            let connection = connections.spawn(async move {
                let answer = service_fn(move |request| {
                    let answer = waiting.answer(&request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let mut builder = Builder::new(TokioExecutor::new());
                builder.http1().keep_alive(false).half_close(true);
                let serving = builder.serve_connection(TokioIo::new(stream), answer);
                // The client learns what failed, if it is there.
                drop(tokio::time::timeout(CONNECTION_TIME, serving).await);
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

    /// As many idle strangers as there are places kept the other nodes from the answer, and so the
    /// cluster from being founded, for as long as they came back.
    #[tokio::test(start_paused = true)]
    async fn idle_strangers_keep_no_answer_from_other_nodes() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        port.set_nonblocking(true).unwrap();
        let address = port.local_addr().unwrap();
        let status = FoundingStatus {
            node: 1,
            cluster: String::new(),
            nodes: Vec::new(),
            is_founded: false,
        };
        let waiting = Waiting::new(status);
        // The clock stands still meanwhile: no connection ends by its time.
        let asked = tokio::task::spawn_blocking(move || {
            let connect = || {
                let stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                stream
            };
            let mut strangers: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connect()).collect();
            let mut node = connect();
            node.write_all(b"GET /founding HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
            let mut answer = String::new();
            node.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert_eq!(strangers[0].read(&mut [0]).unwrap(), 0, "the oldest is closed");
            for stranger in &mut strangers[1..] {
                stranger.set_nonblocking(true).unwrap();
                assert_eq!(stranger.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            }
        });
        let asked = async { Ok(asked.await) };
        waiting.answer_until(&port, asked).await.unwrap().unwrap();
    }
}
