//! A node that answers as a test wants it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use esker_client::{AttemptError, Client, ClientBuilder, Error, Range, Timestamp};
use esker_oracle::TimestampWidth;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The time after which a test fails, however slow the machine is.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(120);
pub const CLUSTER: &str = "0123456789abcdef0123456789abcdef";

/// The answer of a scripted node.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// Timestamps, which are the body in the format that was asked for.
    range: Option<Range>,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: body.into(), ..Self::default() }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn range(range: Range) -> Self {
        Self { status: 200, range: Some(range), ..Self::default() }
    }

    pub fn not_leader(leader: &str) -> Self {
        Self::new(409, "node (1) is not the leader (2)").header("Esker-Leader", leader)
    }
}

/// A server that reads a request, sends these bytes, and ends the connection.
pub async fn raw_server(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                assert!(stream.read(&mut request).await.unwrap() > 0, "a request comes");
                stream.write_all(answer).await.unwrap();
                stream.shutdown().await.unwrap();
                // An unread rest would reset the connection.
                while stream.read(&mut request).await.is_ok_and(|read| read > 0) {}
            });
        }
    });
    address
}

/// Waits until this holds.
pub async fn wait_until(mut holds: impl AsyncFnMut() -> bool) {
    let held = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, held).await.unwrap();
}

/// Calls until a deadline passes after an attempt has failed, and returns the last failure. On a
/// slow machine no attempt may end by the deadline of a call.
pub async fn last_failure(client: &Client) -> AttemptError {
    let failed = async {
        loop {
            match client.timestamp().await {
                Err(Error::Deadline { last: Some(failure) }) => return failure,
                Err(Error::Deadline { last: None }) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, failed).await.unwrap()
}

pub fn members(leader: Option<&str>, all: &[&str], cluster: &str) -> Reply {
    let named = |addr: &&str| serde_json::json!({"nodeID": 1, "addr": addr, "voter": true});
    let all: Vec<_> = all.iter().map(named).collect();
    let leader = leader.as_ref().map(named);
    let body = serde_json::json!({"leader": leader, "members": all, "cluster": cluster});
    Reply::new(200, body.to_string())
}

/// The indexes of one epoch, handed out in the order of the requests.
#[derive(Debug)]
pub struct Issuer(AtomicU64);

impl Issuer {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(1)))
    }

    pub fn take(&self, count: u32) -> Range {
        let index = self.0.fetch_add(count.into(), SeqCst);
        Range { first: Timestamp { epoch: 7, index }, count }
    }
}

/// A request for numbers of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceQuery {
    pub name: String,
    pub count: u32,
    pub key: String,
}

type Replying = Pin<Box<dyn Future<Output = Reply> + Send>>;
type Script = dyn Fn(u32) -> Replying + Send + Sync;
type SequenceScript = dyn Fn(SequenceQuery) -> Replying + Send + Sync;

struct State {
    script: Mutex<Arc<Script>>,
    members: Mutex<Reply>,
    /// The counts and widths of the requests for timestamps.
    asked: Mutex<Vec<(u32, TimestampWidth)>>,
    sequence_script: Mutex<Arc<SequenceScript>>,
    sequence_queries: Mutex<Vec<SequenceQuery>>,
    connections: AtomicUsize,
}

/// A node. It ends when it is dropped.
pub struct Fake {
    pub address: String,
    state: Arc<State>,
    frozen: watch::Sender<bool>,
    cut: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fake {
    /// Answers each request for so many timestamps with what the script returns.
    pub async fn start<F: Future<Output = Reply> + Send + 'static>(
        script: impl Fn(u32) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script: Arc<Script> = Arc::new(move |count| Box::pin(script(count)));
        let no_sequences: Arc<SequenceScript> =
            Arc::new(|query| -> Replying { panic!("{query:?}") });
        let state = Arc::new(State {
            script: Mutex::new(script),
            members: Mutex::new(members(None, &[&address.to_string()], CLUSTER)),
            asked: Mutex::default(),
            sequence_script: Mutex::new(no_sequences),
            sequence_queries: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let (frozen, freezing) = watch::channel(false);
        let (cut, cutting) = watch::channel(());
        let task = tokio::spawn(serve(listener, Arc::clone(&state), freezing, cutting));
        Self { address: address.to_string(), state, frozen, cut, task }
    }

    /// A leader.
    pub async fn issuing(issuer: &Arc<Issuer>) -> Self {
        let issuer = Arc::clone(issuer);
        Self::start(move |count| std::future::ready(Reply::range(issuer.take(count)))).await
    }

    /// Answers the first requests with these, and the others as a leader.
    pub async fn scripted(first: Vec<Reply>, issuer: &Arc<Issuer>) -> Self {
        let (issuer, first) = (Arc::clone(issuer), Mutex::new(first.into_iter()));
        Self::start(move |count| {
            let reply = first.lock().next();
            std::future::ready(reply.unwrap_or_else(|| Reply::range(issuer.take(count))))
        })
        .await
    }

    /// From now on it answers with this.
    pub fn answers(&self, script: impl Fn(u32) -> Reply + Send + Sync + 'static) {
        *self.state.script.lock() = Arc::new(move |count| {
            let reply = script(count);
            Box::pin(std::future::ready(reply))
        });
    }

    /// From now on it answers requests for numbers of sequences with this.
    pub fn answers_sequences<F: Future<Output = Reply> + Send + 'static>(
        &self,
        script: impl Fn(SequenceQuery) -> F + Send + Sync + 'static,
    ) {
        *self.state.sequence_script.lock() = Arc::new(move |query| Box::pin(script(query)));
    }

    /// The requests for numbers of sequences that it got.
    pub fn sequence_queries(&self) -> Vec<SequenceQuery> {
        self.state.sequence_queries.lock().clone()
    }

    pub fn members(&self, reply: Reply) {
        *self.state.members.lock() = reply;
    }

    /// The counts of the requests for timestamps that it got.
    pub fn asked(&self) -> Vec<u32> {
        self.state.asked.lock().iter().map(|(count, _)| *count).collect()
    }

    /// The widths of the same requests.
    pub fn widths(&self) -> Vec<TimestampWidth> {
        self.state.asked.lock().iter().map(|(_, width)| *width).collect()
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(SeqCst)
    }

    /// Waits until it got so many requests.
    pub async fn wait_for_requests(&self, count: usize) {
        wait_until(async || self.asked().len() >= count).await;
    }

    /// Its connections stay, and nothing comes over them, as with a process that is stopped.
    pub fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// Ends its connections.
    pub fn cut(&self) {
        self.cut.send_replace(());
    }

    /// Ends it and its connections.
    pub async fn kill(mut self) -> String {
        self.task.abort();
        drop((&mut self.task).await);
        self.address.clone()
    }

    pub fn client(&self) -> ClientBuilder {
        Client::builder().endpoint(format!("http://{}", self.address)).timeout(TEST_TIMEOUT)
    }
}

async fn serve(
    listener: TcpListener,
    state: Arc<State>,
    frozen: watch::Receiver<bool>,
    cut: watch::Receiver<()>,
) {
    // They end with this.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _): (_, SocketAddr) = listener.accept().await.unwrap();
        state.connections.fetch_add(1, SeqCst);
        let (state, mut frozen, mut cut) = (Arc::clone(&state), frozen.clone(), cut.clone());
        cut.mark_unchanged();
        connections.spawn(async move {
            let answer = service_fn(|request| {
                let state = Arc::clone(&state);
                async move { Ok::<_, Infallible>(answer(&state, request).await) }
            });
            let builder = http2::Builder::new(TokioExecutor::new());
            let mut connection =
                std::pin::pin!(builder.serve_connection(TokioIo::new(stream), answer));
            let freezing = async { drop(frozen.wait_for(|frozen| *frozen).await) };
            let is_frozen = tokio::select! {
                biased;
                () = freezing => true,
                _ = cut.changed() => false,
                _ = connection.as_mut() => false,
            };
            if is_frozen {
                std::future::pending::<()>().await;
            }
        });
    }
}

async fn answer(state: &State, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let uri = request.uri();
    let reply = match uri.path() {
        "/members" => state.members.lock().clone(),
        "/timestamp" => {
            let (count, width) = parse_query(uri.query().unwrap());
            state.asked.lock().push((count, width));
            let replying = (state.script.lock().clone())(count);
            let mut reply = replying.await;
            if let Some(range) = reply.range {
                reply.body = encode_range(range, width);
            }
            reply
        }
        path => {
            let name = path.strip_prefix("/sequence/").unwrap();
            let query = parse_sequence_query(request.method(), name, uri.query().unwrap());
            state.sequence_queries.lock().push(query.clone());
            let replying = (state.sequence_script.lock().clone())(query);
            replying.await
        }
    };
    let mut answer = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        answer = answer.header(name, value);
    }
    answer.body(Full::new(reply.body.into())).unwrap()
}

/// Parses the query of a request for timestamps.
fn parse_query(query: &str) -> (u32, TimestampWidth) {
    let (count, format) = query.strip_prefix("n=").unwrap().split_once("&format=").unwrap();
    let width = match format {
        "range" => TimestampWidth::Bits128,
        "u64-range" => TimestampWidth::Bits64,
        other => panic!("{other}"),
    };
    (count.parse().unwrap(), width)
}

fn parse_sequence_query(method: &Method, name: &str, query: &str) -> SequenceQuery {
    assert_eq!(method, Method::POST);
    let (count, key) = query.strip_prefix("n=").unwrap().split_once("&key=").unwrap();
    SequenceQuery { name: name.into(), count: count.parse().unwrap(), key: key.into() }
}

fn encode_range(range: Range, width: TimestampWidth) -> Vec<u8> {
    let mut body = match width {
        TimestampWidth::Bits128 => range.first.to_bytes().to_vec(),
        TimestampWidth::Bits64 => range.first.to_u64().unwrap().to_be_bytes().to_vec(),
    };
    body.extend(u64::from(range.count).to_be_bytes());
    body
}

/// A leader whose answers wait until they are released. What they say is decided before.
pub struct HeldAnswers {
    pub fake: Fake,
    released: Arc<tokio::sync::Semaphore>,
}

impl HeldAnswers {
    pub async fn start(issuer: &Arc<Issuer>) -> Self {
        let (issuer, released) = (Arc::clone(issuer), Arc::new(tokio::sync::Semaphore::new(0)));
        let waits = Arc::clone(&released);
        let fake = Fake::start(move |count| {
            let (range, waits) = (issuer.take(count), Arc::clone(&waits));
            async move {
                waits.acquire().await.unwrap().forget();
                Reply::range(range)
            }
        });
        Self { fake: fake.await, released }
    }

    pub fn release(&self, requests: usize) {
        self.released.add_permits(requests);
    }
}
