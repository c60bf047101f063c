//! The connections of a leader to voters, for proofs.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::base::failure::invalid_data;
use crate::network::address::Address;
use crate::network::handshake::Handshake;
use crate::network::peer::connect;
use crate::network::proof::{ANSWER_BYTES, ProofAnswer, encode_query};
use crate::network::timeouts::SILENCE_TIMEOUT;
use crate::network::transport::Connection;

/// The delay before a node that cannot be reached is tried again, while others are enough.
const RECONNECT_DELAY: Duration = Duration::from_millis(20);

/// A connection to one node, opened by a query, and again by one after it failed. A connection
/// that was opened for an older query, and failed, is opened again for the newest, once.
///
/// Dropping it closes the connection. It belongs to the runtime that the first query is made on.
#[derive(Debug)]
pub(crate) struct ProofLink {
    address: Address,
    handshake: Handshake,
    state: LinkState,
    /// The query for which the connection was opened.
    opened_for: u64,
    is_known_down: bool,
}

#[derive(Debug)]
enum LinkState {
    Down { until: Option<Instant> },
    Opening(JoinHandle<io::Result<Connection>>),
    Up(ProofConnection),
}

/// An open connection, and the answer that has arrived in part.
#[derive(Debug)]
struct ProofConnection {
    stream: Connection,
    answer: [u8; ANSWER_BYTES],
    filled: usize,
    /// The time when the oldest query without an answer was sent.
    waits_since: Option<Instant>,
}

impl ProofLink {
    pub(crate) fn new(address: Address, handshake: Handshake) -> Self {
        let state = LinkState::Down { until: None };
        Self { address, handshake, state, opened_for: 0, is_known_down: false }
    }

    /// Sends a query, or begins to open the connection over which it is sent. Does not wait.
    pub(crate) fn ask(&mut self, number: u64) {
        debug_assert!(self.opened_for < number, "the numbers of queries rise");
        match &mut self.state {
            LinkState::Up(open) => {
                if let Err(error) = open.ask(number) {
                    self.fail(number, &error);
                }
            }
            LinkState::Down { until: Some(until) } if Instant::now() < *until => {}
            LinkState::Down { .. } => self.open(number),
            LinkState::Opening(_) => {}
        }
    }

    /// Returns whether there is no connection, and none is being opened.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.state, LinkState::Down { .. })
    }

    /// Opens the connection again before its delay ends. Returns whether it did: once for each
    /// query.
    pub(crate) fn retry(&mut self, number: u64) -> bool {
        let retries = self.is_down() && self.opened_for < number;
        if retries {
            self.open(number);
        }
        retries
    }

    /// Opens the connection again after its delay. Returns whether it did.
    pub(crate) fn ask_again(&mut self, number: u64) -> bool {
        let LinkState::Down { until } = self.state else { return false };
        let asks = until.is_none_or(|until| until <= Instant::now());
        if asks {
            self.open(number);
        }
        asks
    }

    fn open(&mut self, number: u64) {
        let (address, handshake) = (self.address.clone(), self.handshake);
        self.opened_for = number;
        self.state =
            LinkState::Opening(tokio::spawn(async move { connect(&address, &handshake).await }));
    }

    /// Polls for the answer to the newest query. Returns `None` if there is no connection for it.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        number: u64,
    ) -> Poll<Option<ProofAnswer>> {
        loop {
            let failed = match &mut self.state {
                LinkState::Down { .. } => return Poll::Ready(None),
                LinkState::Opening(opening) => {
                    let opened = ready!(Pin::new(opening).poll(context));
                    let panicked = |_| Err(io::Error::other("the task that connects panicked"));
                    match opened.unwrap_or_else(panicked) {
                        Ok(stream) => {
                            let mut open = ProofConnection::new(stream);
                            let asked = open.ask(number);
                            self.state = LinkState::Up(open);
                            self.is_known_down = false;
                            asked.err()
                        }
                        Err(error) => Some(error),
                    }
                }
                LinkState::Up(open) => match ready!(open.poll(context)) {
                    Ok(voted) if voted.number == number => return Poll::Ready(Some(voted)),
                    // An answer to a query that no proof waits for any more.
                    Ok(ProofAnswer { number: answered, .. }) if answered < number => None,
                    Ok(_) => Some(invalid_data("it answered a query that was not sent".into())),
                    Err(error) => Some(error),
                },
            };
            if let Some(error) = failed {
                self.fail(number, &error);
            }
        }
    }

    fn fail(&mut self, number: u64, error: &io::Error) {
        if self.opened_for < number {
            return self.open(number);
        }
        if !self.is_known_down {
            let node = self.handshake.to;
            tracing::warn!(node, %error, "no connection for proofs of leadership");
        }
        self.is_known_down = true;
        self.state = LinkState::Down { until: Some(Instant::now() + RECONNECT_DELAY) };
    }
}

impl Drop for ProofLink {
    fn drop(&mut self) {
        if let LinkState::Opening(opening) = &self.state {
            opening.abort();
        }
    }
}

impl ProofConnection {
    fn new(stream: Connection) -> Self {
        Self { stream, answer: [0; ANSWER_BYTES], filled: 0, waits_since: None }
    }

    fn ask(&mut self, number: u64) -> io::Result<()> {
        if self.waits_since.is_some_and(|since| since.elapsed() > SILENCE_TIMEOUT) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the node is silent"));
        }
        let query = encode_query(number);
        // A few bytes: they fit, unless thousands of queries were not read.
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut self.stream).poll_write(&mut context, &query)? {
            Poll::Ready(written) if written == query.len() => {}
            _ => return Err(io::ErrorKind::WriteZero.into()),
        }
        self.waits_since.get_or_insert_with(Instant::now);
        Ok(())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<ProofAnswer>> {
        while self.filled < ANSWER_BYTES {
            let mut into = ReadBuf::new(&mut self.answer[self.filled..]);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut into))?;
            match into.filled().len() {
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                read => self.filled += read,
            }
        }
        self.filled = 0;
        self.waits_since = None;
        Poll::Ready(ProofAnswer::decode(&self.answer))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::poll_fn;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::network::handshake::{ClusterId, PROTOCOL_VERSION, Purpose};
    use crate::network::transport::TcpTransport;

    const CLUSTER: ClusterId = ClusterId([1; 16]);

    /// Opens a link to a node that this test plays.
    async fn link() -> (ProofLink, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address_text = listener.local_addr().unwrap().to_string();
        let address = Address::new(Arc::new(TcpTransport::default()), &address_text);
        let purpose = Purpose::Proofs;
        let handshake =
            Handshake { version: PROTOCOL_VERSION, purpose, cluster: CLUSTER, from: 1, to: 2 };
        (ProofLink::new(address, handshake), listener)
    }

    async fn accepted(listener: &TcpListener) -> TcpStream {
        let (mut stream, _) = listener.accept().await.unwrap();
        let handshake = Handshake::read(&mut stream).await.unwrap();
        handshake.answer(CLUSTER, 2).write(&mut stream).await.unwrap();
        stream
    }

    /// The term of the answer.
    async fn answered(link: &mut ProofLink, number: u64) -> Option<u64> {
        poll_fn(|context| link.poll(context, number)).await.map(|voted| voted.term)
    }

    fn voted(number: u64, term: u64) -> [u8; ANSWER_BYTES] {
        ProofAnswer { number, term, clock: 7 }.encode()
    }

    async fn is_pending(link: &mut ProofLink, number: u64) -> bool {
        let moment = Duration::from_millis(50);
        tokio::time::timeout(moment, answered(link, number)).await.is_err()
    }

    /// A late answer is from before the requests that wait for the newest query.
    #[tokio::test]
    async fn an_answer_to_an_older_query_does_not_count() {
        let (mut link, listener) = link().await;
        link.ask(1);
        let (mut node, pending) = tokio::join!(accepted(&listener), is_pending(&mut link, 1));
        assert!(pending);
        link.ask(2);
        node.write_all(&voted(1, 5)).await.unwrap();
        assert!(is_pending(&mut link, 2).await);
        node.write_all(&voted(2, 6)).await.unwrap();
        assert_eq!(answered(&mut link, 2).await, Some(6));
        let mut queries = [0; 24];
        node.read_exact(&mut queries).await.unwrap();
        assert_eq!(queries[..12], encode_query(1));
        assert_eq!(queries[12..], encode_query(2));
    }

    #[tokio::test]
    async fn an_answer_to_a_query_that_was_not_sent_ends_the_connection() {
        let (mut link, listener) = link().await;
        link.ask(1);
        let (mut node, _) = tokio::join!(accepted(&listener), is_pending(&mut link, 1));
        node.write_all(&voted(2, 5)).await.unwrap();
        assert_eq!(answered(&mut link, 1).await, None);
        // The next query is sent over another connection.
        tokio::time::sleep(RECONNECT_DELAY).await;
        link.ask(2);
        let (mut node, _) = tokio::join!(accepted(&listener), is_pending(&mut link, 2));
        node.write_all(b"this is no answer...........").await.unwrap();
        assert_eq!(answered(&mut link, 2).await, None);
    }

    /// A node ends connections over which nothing is asked, and a try may be old.
    #[tokio::test]
    async fn a_connection_that_ended_is_opened_again_for_the_same_query() {
        let (mut link, listener) = link().await;
        link.ask(1);
        let node = async {
            let mut node = accepted(&listener).await;
            node.write_all(&voted(1, 3)).await.unwrap();
        };
        let ((), answer) = tokio::join!(node, answered(&mut link, 1));
        assert_eq!(answer, Some(3));
        link.ask(2);
        let node = async {
            let mut node = accepted(&listener).await;
            node.write_all(&voted(2, 4)).await.unwrap();
        };
        let ((), answer) = tokio::join!(node, answered(&mut link, 2));
        assert_eq!(answer, Some(4));
    }

    #[tokio::test]
    async fn a_node_that_cannot_be_reached_answers_nothing() {
        let (mut link, listener) = link().await;
        drop(listener);
        for number in 1..10 {
            link.ask(number);
            assert_eq!(answered(&mut link, number).await, None);
        }
    }
}
