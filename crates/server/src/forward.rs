//! Asking the leader in place of a client.
//!
//! A node that does not lead keeps a few connections to the one that does. It does not ask again
//! for a request that another node asks with: [`FORWARDED`] names that node.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::{Mutex, Semaphore};

/// The header of a request that a node asks with: its number.
pub(crate) const FORWARDED: &str = "esker-forwarded";

const CONNECTIONS: usize = 4;
/// As many as a node answers at a time on a connection.
const STREAMS: usize = 128;
/// A kept connection may have ended, and then there is a second attempt over another one.
const ATTEMPTS: usize = 2;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum ForwardError {
    /// Too many requests are on their way.
    Busy,
    TimedOut,
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the leader was not asked")
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

/// A connection to this address.
#[derive(Debug, Clone)]
struct Link {
    address: String,
    sender: SendRequest<Empty<Bytes>>,
    number: usize,
}

/// The connections to the leader.
#[derive(Debug)]
pub(crate) struct Forwarder {
    node: u64,
    links: [Mutex<Option<Link>>; CONNECTIONS],
    next: AtomicUsize,
    requests: Semaphore,
    patience: Duration,
}

impl Forwarder {
    /// Of this node, which waits so long for an answer.
    pub(crate) fn new(node: u64, patience: Duration) -> Self {
        Self {
            node,
            links: Default::default(),
            next: AtomicUsize::new(0),
            requests: Semaphore::new(CONNECTIONS * STREAMS),
            patience,
        }
    }

    /// Asks the node at this address, whose answer has so many bytes at most.
    pub(crate) async fn ask(
        &self,
        address: &str,
        path: &str,
        most: usize,
    ) -> Result<Response<Bytes>, ForwardError> {
        let Ok(_place) = self.requests.try_acquire() else { return Err(ForwardError::Busy) };
        let number = self.next.fetch_add(1, Relaxed);
        let asked = tokio::time::timeout(self.patience, self.tried(number, address, path, most));
        match asked.await {
            Ok(answer) => answer.map_err(ForwardError::Failed),
            Err(_) => {
                // It may hang. A request that has the lock connects again.
                if let Ok(mut link) = self.links[number % CONNECTIONS].try_lock() {
                    link.take();
                }
                Err(ForwardError::TimedOut)
            }
        }
    }

    async fn tried(
        &self,
        number: usize,
        address: &str,
        path: &str,
        most: usize,
    ) -> Result<Response<Bytes>, AnyError> {
        let mut failure = None;
        for _ in 0..ATTEMPTS {
            let mut link = self.link(number, address).await?;
            match exchange(&mut link, self.node, path, most).await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    let mut kept = self.links[number % CONNECTIONS].lock().await;
                    kept.take_if(|kept| kept.number == link.number);
                    failure = Some(error);
                }
            }
        }
        Err(failure.unwrap_or_else(|| "no attempt".into()))
    }

    /// One of the connections, if it is to this address; otherwise a new one.
    async fn link(&self, number: usize, address: &str) -> Result<Link, AnyError> {
        let mut link = self.links[number % CONNECTIONS].lock().await;
        match &*link {
            Some(link) if link.address == address && !link.sender.is_closed() => Ok(link.clone()),
            _ => {
                let stream = esker_raft::connect(address).await?;
                stream.set_nodelay(true)?;
                let (sender, connection) =
                    handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
                // It ends with its last sender; what fails there fails the requests, too.
                tokio::spawn(async move { drop(connection.await) });
                let new = Link { address: address.to_owned(), sender, number };
                Ok(link.insert(new).clone())
            }
        }
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(
    link: &mut Link,
    node: u64,
    path: &str,
    most: usize,
) -> Result<Response<Bytes>, AnyError> {
    link.sender.ready().await?;
    let request = Request::get(format!("http://{}{path}", link.address)).header(FORWARDED, node);
    let answer = link.sender.send_request(request.body(Empty::new())?).await?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, most).collect().await?.to_bytes();
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
        let patience = Duration::from_millis(100);
        let forwarder = Arc::new(Forwarder::new(1, patience));
        let begun = Instant::now();
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..CONNECTIONS * STREAMS + 1 {
            let (forwarder, address) = (Arc::clone(&forwarder), address.clone());
            asked.spawn(async move { forwarder.ask(&address, "/timestamp", 16).await });
        }
        let mut busy = 0;
        while let Some(answer) = asked.join_next().await {
            match answer.unwrap() {
                Err(ForwardError::Busy) => busy += 1,
                Err(ForwardError::TimedOut) => {}
                other => unreachable!("{other:?}"),
            }
        }
        assert_eq!(busy, 1);
        assert!(begun.elapsed() < patience * 50, "{:?}", begun.elapsed());
        let gone = forwarder.ask("127.0.0.1:1", "/timestamp", 16).await;
        assert!(matches!(gone, Err(ForwardError::Failed(_))), "{gone:?}");
    }
}
