//! Forwarding of requests to the leader, in place of a client.
//!
//! A node that does not lead keeps a few connections to the one that does. It does not forward a
//! request that another node forwarded: [`FORWARDED_HEADER`] names that node.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::{Mutex, Semaphore};

use crate::options::STREAMS_MAX;
use crate::security::Caller;
use crate::tls::HttpVersion;

/// The header of a forwarded request: the number of the node that forwards it.
pub(crate) const FORWARDED_HEADER: &str = "esker-forwarded";

const LEADER_CONNECTIONS: usize = 4;
/// The most requests that are forwarded at a time: as many as the leader answers at a time on these
/// connections.
const REQUESTS_MAX: usize = LEADER_CONNECTIONS * STREAMS_MAX as usize;

const _: () = assert!(REQUESTS_MAX == 512, "the limit in the documentation");

/// The error of a request that was not forwarded, or not answered.
#[derive(Debug)]
pub(crate) enum ForwardError {
    /// Too many requests are being forwarded.
    Busy,
    TimedOut,
    Failed(AnyError),
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed to forward the request to the leader")
    }
}

impl std::error::Error for ForwardError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(error) => Some(&**error),
            Self::Busy | Self::TimedOut => None,
        }
    }
}

/// A connection to the leader. Clones share it.
#[derive(Debug, Clone)]
struct LeaderConnection {
    address: String,
    sender: SendRequest<Empty<Bytes>>,
    /// The number of the request that opened it.
    opened_by: usize,
}

/// Forwards requests to the leader.
#[derive(Debug)]
pub(crate) struct Forwarder {
    node: u64,
    caller: Caller,
    connections: [Mutex<Option<LeaderConnection>>; LEADER_CONNECTIONS],
    next_request: AtomicUsize,
    requests: Semaphore,
    timeout: Duration,
}

impl Forwarder {
    /// Creates the forwarder of node `node`, which waits for an answer for `timeout`.
    pub(crate) fn new(node: u64, caller: Caller, timeout: Duration) -> Self {
        Self {
            node,
            caller,
            connections: Default::default(),
            next_request: AtomicUsize::new(0),
            requests: Semaphore::new(REQUESTS_MAX),
            timeout,
        }
    }

    /// Forwards a request to the node at this address. An answer of more than `bytes_max` bytes
    /// fails.
    pub(crate) async fn forward(
        &self,
        address: &str,
        path: &str,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, ForwardError> {
        let Ok(_permit) = self.requests.try_acquire() else { return Err(ForwardError::Busy) };
        let request = self.next_request.fetch_add(1, Relaxed);
        let attempts = self.try_twice(request, address, path, bytes_max);
        match tokio::time::timeout(self.timeout, attempts).await {
            Ok(answer) => answer.map_err(ForwardError::Failed),
            Err(_) => {
                // The connection may hang. A request that has the lock connects again.
                if let Ok(mut connection) = self.slot(request).try_lock() {
                    connection.take();
                }
                Err(ForwardError::TimedOut)
            }
        }
    }

    /// Sends a request once, and once more if that fails: a kept connection may have ended.
    async fn try_twice(
        &self,
        request: usize,
        address: &str,
        path: &str,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, AnyError> {
        match self.try_once(request, address, path, bytes_max).await {
            Ok(answer) => Ok(answer),
            Err(Attempt::NotConnected(error)) => Err(error),
            Err(Attempt::Unanswered(_)) => {
                let again = self.try_once(request, address, path, bytes_max).await;
                again.map_err(|(Attempt::NotConnected(error) | Attempt::Unanswered(error))| error)
            }
        }
    }

    async fn try_once(
        &self,
        request: usize,
        address: &str,
        path: &str,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, Attempt> {
        let mut connection = self.connect(request, address).await.map_err(Attempt::NotConnected)?;
        match exchange(&mut connection, self.node, path, bytes_max).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                let mut kept = self.slot(request).lock().await;
                kept.take_if(|kept| kept.opened_by == connection.opened_by);
                Err(Attempt::Unanswered(error))
            }
        }
    }

    fn slot(&self, request: usize) -> &Mutex<Option<LeaderConnection>> {
        &self.connections[request % LEADER_CONNECTIONS]
    }

    /// Returns the kept connection for a request, if it is to this address; otherwise a new one.
    async fn connect(&self, request: usize, address: &str) -> Result<LeaderConnection, AnyError> {
        let mut kept = self.slot(request).lock().await;
        match &*kept {
            Some(kept) if kept.address == address && !kept.sender.is_closed() => Ok(kept.clone()),
            _ => {
                let stream = self.caller.connect(address, HttpVersion::Http2).await?.stream;
                let (sender, connection) =
                    handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
                // It ends with its last sender; what fails there fails the requests, too.
                tokio::spawn(async move { drop(connection.await) });
                let address = address.to_owned();
                let new = LeaderConnection { address, sender, opened_by: request };
                Ok(kept.insert(new).clone())
            }
        }
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The failure of one attempt.
enum Attempt {
    NotConnected(AnyError),
    Unanswered(AnyError),
}

async fn exchange(
    connection: &mut LeaderConnection,
    node: u64,
    path: &str,
    bytes_max: usize,
) -> Result<Response<Bytes>, AnyError> {
    connection.sender.ready().await?;
    let uri = format!("http://{}{path}", connection.address);
    let request = Request::get(uri).header(FORWARDED_HEADER, node);
    let answer = connection.sender.send_request(request.body(Empty::new())?).await?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, bytes_max).collect().await?.to_bytes();
    debug_assert!(body.len() <= bytes_max, "the caller has memory for {bytes_max} bytes");
    Ok(Response::from_parts(head, body))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;
    use std::time::Instant;

    use tokio::net::TcpListener;

    use super::*;

    /// A leader that takes connections and answers nothing.
    #[tokio::test]
    async fn a_leader_that_hangs_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let timeout = Duration::from_millis(100);
        let forwarder = Arc::new(Forwarder::new(1, Caller::default(), timeout));
        let begun = Instant::now();
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..REQUESTS_MAX + 1 {
            let (forwarder, address) = (Arc::clone(&forwarder), address.clone());
            requests.spawn(async move { forwarder.forward(&address, "/timestamp", 16).await });
        }
        let mut busy = 0;
        while let Some(answer) = requests.join_next().await {
            match answer.unwrap() {
                Err(ForwardError::Busy) => busy += 1,
                Err(ForwardError::TimedOut) => {}
                other => unreachable!("{other:?}"),
            }
        }
        assert_eq!(busy, 1);
        assert!(begun.elapsed() < timeout * 50, "{:?}", begun.elapsed());
        let gone = forwarder.forward("127.0.0.1:1", "/timestamp", 16).await;
        assert!(matches!(gone, Err(ForwardError::Failed(_))), "{gone:?}");
    }
}
