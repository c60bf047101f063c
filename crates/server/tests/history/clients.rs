//! Clients that record every call, and the check of what they got.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use esker_oracle::history::{Call, check, in_milliseconds};
use esker_oracle::{Range, Timestamp};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client::Protocol;
use crate::http_answer::HttpAnswer;
use crate::nodes::TEST_TIMEOUT;
use crate::tls_client::TlsClient;

const CLIENTS: usize = 200;
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
const CALL_PAUSE: Duration = Duration::from_millis(20);
/// No epoch is further ahead of the right time: less than a clock that is wrong.
const EPOCH_LEAD_MAX: Duration = Duration::from_secs(1800);

pub struct Clients {
    addresses: Vec<String>,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<Vec<Call>>>,
}

struct Client {
    /// The addresses of all nodes.
    addresses: Vec<String>,
    /// The number of the client. Even ones follow the leader, the others ask all nodes in turn:
    /// while a leader is stopped or cut off, they are on both sides.
    number: usize,
    turn: usize,
    /// Where it asks.
    address: String,
    /// If it uses TLS.
    tls: Option<TlsClient>,
    connections: HashMap<String, Connection>,
}

/// Every fifth client has HTTP/3.
enum Connection {
    Http1(SendRequest<Empty<Bytes>>),
    #[cfg(feature = "http3")]
    Http3(crate::http3_client::Client),
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

impl Connection {
    #[cfg_attr(not(feature = "http3"), allow(unused_variables))]
    async fn open(address: &str, number: usize, tls: Option<&TlsClient>) -> Result<Self, AnyError> {
        #[cfg(feature = "http3")]
        if number.is_multiple_of(5) {
            return Ok(Self::Http3(crate::http3_client::Client::connect(address, None).await?));
        }
        if let Some(tls) = tls {
            let stream = tls.connect(address, Protocol::Http1).await?;
            stream.get_ref().0.set_nodelay(true)?;
            return Self::over(stream).await;
        }
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Self::over(stream).await
    }

    async fn over<S>(stream: S) -> Result<Self, AnyError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self::Http1(sender))
    }

    async fn get(&mut self, path: &str) -> Result<HttpAnswer, AnyError> {
        match self {
            Self::Http1(sender) => {
                let request = Request::get(path).header("host", "esker");
                sender.ready().await?;
                let answer = sender.send_request(request.body(Empty::new())?).await?;
                let (head, body) = answer.into_parts();
                let (status, body) = (head.status.as_u16(), body.collect().await?.to_bytes());
                Ok(HttpAnswer { status, headers: head.headers, body })
            }
            #[cfg(feature = "http3")]
            Self::Http3(client) => client.get(path).await,
        }
    }
}

/// The answer of a node.
enum Outcome {
    Timestamps(Bytes),
    /// No timestamps, and the leader if it named one.
    Refused(Option<String>),
}

impl Client {
    fn new(addresses: &[String], tls: Option<TlsClient>, number: usize) -> Self {
        let address = addresses[number % addresses.len()].clone();
        let addresses = addresses.to_vec();
        Self { addresses, number, turn: number, address, tls, connections: HashMap::new() }
    }

    async fn ask(&mut self, count: u32) -> Result<Outcome, AnyError> {
        let mut connection = match self.connections.remove(&self.address) {
            Some(connection) => connection,
            None => Connection::open(&self.address, self.number, self.tls.as_ref()).await?,
        };
        let format = if gets_64_bits(self.number) { "u64" } else { "list" };
        let answer = connection.get(&format!("/timestamp?n={count}&format={format}")).await?;
        // Not after a failure, and not when the client has given up.
        self.connections.insert(self.address.clone(), connection);
        if answer.status == 200 {
            return Ok(Outcome::Timestamps(answer.body));
        }
        Ok(Outcome::Refused(answer.header("esker-leader").map(str::to_owned)))
    }

    /// Calls until it shall stop, and returns the calls that were answered with timestamps.
    async fn run(mut self, begun: Instant, stop: &AtomicBool, answered: &AtomicU64) -> Vec<Call> {
        let mut calls = Vec::new();
        let now = || begun.elapsed().as_nanos() as u64;
        let count = if self.number.is_multiple_of(4) { 100 } else { 1 };
        // A packet to a killed process is not answered: the patience of one request may be that of
        // a short run.
        while !stop.load(SeqCst) || (calls.is_empty() && begun.elapsed() < TEST_TIMEOUT) {
            let called = now();
            let outcome = tokio::time::timeout(CALL_TIMEOUT, self.ask(count)).await;
            let returned = now();
            self.turn += 1;
            let next = self.addresses[self.turn % self.addresses.len()].clone();
            match outcome {
                Ok(Ok(Outcome::Timestamps(body))) => {
                    let range = match gets_64_bits(self.number) {
                        true => u64_range(&body, count),
                        false => range(&body, count),
                    };
                    calls.push(Call { called, returned, range });
                    answered.fetch_add(1, SeqCst);
                    if self.number % 2 == 1 {
                        self.address = next;
                    }
                }
                Ok(Ok(Outcome::Refused(leader))) => {
                    self.address = leader.filter(|_| self.number.is_multiple_of(2)).unwrap_or(next);
                }
                Ok(Err(_)) | Err(_) => self.address = next,
            }
            tokio::time::sleep(CALL_PAUSE).await;
        }
        calls
    }
}

impl Clients {
    /// Starts clients of the nodes at these addresses. With an authority, they use TLS.
    pub fn start(addresses: &[String], authority: Option<&Path>) -> Self {
        let tls = authority.map(|authority| TlsClient::new(authority, None));
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let begun = Instant::now();
        let tasks = (0..CLIENTS).map(|number| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            let client = Client::new(addresses, tls.clone(), number);
            tokio::spawn(async move { client.run(begun, &stop, &answered).await })
        });
        let tasks = tasks.collect();
        Self { addresses: addresses.to_vec(), stop, answered, tasks }
    }

    /// Waits until so many more calls were answered.
    pub async fn progress(&self, more: u64) {
        let (deadline, end) = (Instant::now() + TEST_TIMEOUT, self.answered.load(SeqCst) + more);
        while self.answered.load(SeqCst) < end {
            if Instant::now() >= deadline {
                panic!("no timestamps: {:#?}", self.statuses().await);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Returns the status of each node.
    async fn statuses(&self) -> Vec<String> {
        let mut statuses = Vec::new();
        for address in &self.addresses {
            let status = esker_server::ask(address, "/status", None, CALL_TIMEOUT).await;
            let members = esker_server::ask(address, "/members", None, CALL_TIMEOUT).await;
            for answer in [status, members] {
                statuses.push(answer.map_or_else(|error| error.to_string(), |said| said.text()));
            }
        }
        statuses
    }

    /// Stops them, checks what they got, and returns how many calls that are.
    pub async fn check(self) -> usize {
        self.stop.store(true, SeqCst);
        let (mut calls, mut of_64_bits) = (Vec::new(), Vec::new());
        for (number, task) in self.tasks.into_iter().enumerate() {
            let own = task.await.unwrap();
            assert!(!own.is_empty(), "client {number} got nothing");
            if gets_64_bits(number) { of_64_bits.extend(own) } else { calls.extend(own) }
        }
        check(&calls).unwrap_or_else(|violation| panic!("{violation}"));
        calls.append(&mut of_64_bits);
        check(&in_milliseconds(&calls)).unwrap_or_else(|violation| panic!("{violation}"));
        let latest = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + EPOCH_LEAD_MAX;
        let ahead =
            calls.iter().find(|call| u128::from(call.range.first.epoch) > latest.as_nanos());
        assert_eq!(ahead, None, "a wrong clock was followed");
        calls.len()
    }
}

/// Whether a client asks for timestamps of 64 bits: every third one.
fn gets_64_bits(number: usize) -> bool {
    number % 3 == 1
}

/// All timestamps of 64 bits of an answer, which are consecutive.
fn u64_range(body: &[u8], count: u32) -> Range {
    let all: Vec<_> =
        body.chunks(8).map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap())).collect();
    let consecutive = (0..u64::from(count)).map(|n| all[0] + n);
    assert!(all.iter().copied().eq(consecutive), "{all:?}");
    Range { first: Timestamp::from_u64(all[0]).unwrap(), count }
}

/// All timestamps of an answer: of one epoch, with consecutive indexes.
fn range(body: &[u8], count: u32) -> Range {
    let at = |chunk: &[u8]| Timestamp::from_bytes(chunk.try_into().unwrap());
    let range = Range { first: at(&body[..16]), count };
    let all: Vec<_> = body.chunks(16).map(at).collect();
    assert!(all.iter().copied().eq(range.timestamps()), "{all:?}");
    range
}
