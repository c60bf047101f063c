//! More requests than a node takes, and many at a time.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_oracle::history::{Call, check};
use esker_oracle::{Range, Timestamp};
use esker_server::ServerOptions;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client::{Protocol, get, post};
use crate::nodes::{Nodes, TEST_TIMEOUT};

/// A round trip whose lease outlasts what other tests do to the processors: no election comes
/// between.
const CALM_ROUND_TRIP: Duration = Duration::from_millis(200);

type Frame = Result<hyper::body::Frame<Bytes>, std::convert::Infallible>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_refused_at_once_and_the_node_recovers() {
    let set = |options: &mut ServerOptions| {
        options.oracle.buffer = 4;
        options.round_trip = CALM_ROUND_TRIP;
    };
    let nodes = Nodes::with(3, set).await;
    let leader = nodes.leader().await;
    let address: Arc<str> = nodes.address(leader).into();
    nodes.timestamp(leader).await;
    let mut asked = Vec::new();
    for _ in 0..400 {
        let address = Arc::clone(&address);
        asked.push(tokio::spawn(async move {
            let asks = get(Protocol::Http1, &address, "/timestamp");
            tokio::time::timeout(TEST_TIMEOUT, asks).await.unwrap()
        }));
    }
    let (mut issued, mut refused) = (Vec::new(), 0);
    for asked in asked {
        let seen = asked.await.unwrap();
        match seen.status {
            200 => issued.push(seen.body),
            503 => {
                assert_eq!(seen.header("retry-after"), Some("1"));
                refused += 1;
            }
            status => panic!("{status}: {seen:?}"),
        }
    }
    issued.sort_unstable();
    issued.windows(2).for_each(|pair| assert_ne!(pair[0], pair[1]));
    assert!(refused > 0 && !issued.is_empty(), "{refused} refused, {} issued", issued.len());
    for _ in 0..20 {
        assert_eq!(get(Protocol::Http1, &address, "/timestamp").await.status, 200);
    }
}

/// A connection that takes no answers is not closed so soon where no other waits for its memory.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(20);

/// Clients that ask for long answers and read none of them: four had all the memory, and kept
/// every other client from a list for 49 s. HTTP/2, because its windows keep the answers in the
/// node; over HTTP/1.1 the kernel takes some of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_not_read_take_bounded_memory() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    let (mut refused, mut silent) = (0, Vec::new());
    for _ in 0..16 {
        let stream = TokioIo::new(TcpStream::connect(&address).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(1024)
                .handshake(stream)
                .await
                .unwrap();
        tokio::spawn(connection);
        for _ in 0..20 {
            let uri = format!("http://{address}/timestamp?n=65536");
            let request = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
            let answer = sender.send_request(request).await.unwrap();
            match answer.status().as_u16() {
                200 => silent.push(answer),
                503 => refused += 1,
                other => panic!("{other}"),
            }
        }
    }
    // No connection has more than a sixteenth of the memory.
    assert_eq!((silent.len(), refused), (256, 64));
    // Short ones need no permit.
    assert_eq!(get(Protocol::Http1, &address, "/timestamp?n=16").await.status, 200);
    // One that waits gets the memory of one that takes nothing.
    let begun = Instant::now();
    while get(Protocol::Http1, &address, "/timestamp?n=65536").await.status != 200 {
        assert!(begun.elapsed() < EVICTION_TIMEOUT, "the others kept all the memory");
    }
    let evicted = counter(&address, "esker_http_connections_evicted_total").await;
    assert!((1..16).contains(&evicted), "{evicted}");
    // And the rest comes back.
    drop(silent);
    for _ in 0..20 {
        let asked = get(Protocol::Http1, &address, "/timestamp?n=65536").await;
        assert_eq!((asked.status, asked.body.len()), (200, 1 << 20));
    }
}

async fn counter(address: &str, name: &str) -> u64 {
    let metrics = get(Protocol::Http1, address, "/metrics").await;
    let value = metrics.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// Metrics and members that are not read: operators got none, either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_that_are_not_read_keep_no_other_from_them() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    let mut silent = Vec::new();
    for _ in 0..16 {
        let stream = TokioIo::new(TcpStream::connect(&address).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(16)
                .handshake(stream)
                .await
                .unwrap();
        tokio::spawn(connection);
        // As many as the share of one connection allows.
        for _ in 0..64 {
            let uri = format!("http://{address}/metrics");
            let request = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status(), 200);
            silent.push(answer);
        }
    }
    let begun = Instant::now();
    while get(Protocol::Http1, &address, "/metrics").await.status != 200 {
        assert!(begun.elapsed() < EVICTION_TIMEOUT, "the others kept all the memory");
    }
}

/// Changes of the cluster whose bodies do not come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_do_not_come_take_bounded_memory() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    let deadline = Instant::now() + TEST_TIMEOUT;
    // Bodies end by a deadline of their own, too, which may be first on a slow machine.
    while counter(&address, "esker_http_connections_evicted_total").await == 0 {
        assert!(Instant::now() < deadline, "all bodies had memory");
        let clients = bodies_that_do_not_come(&address).await;
        // One that waits gets the memory of a connection that sends nothing. A body without a
        // cluster.
        while post(&address, "/cluster/admit", "{}").await.status != 400 {
            assert!(Instant::now() < deadline, "the others kept all the memory");
        }
        assert_eq!(get(Protocol::Http1, &address, "/timestamp").await.status, 200);
        clients.iter().for_each(JoinHandle::abort);
    }
}

/// Connections that together ask for more memory than there is for bodies.
async fn bodies_that_do_not_come(address: &str) -> Vec<JoinHandle<hyper::Result<()>>> {
    /// 64 MiB for all, of 64 KiB each.
    const BODIES_MAX: usize = 1024;
    let mut clients = Vec::new();
    for _ in 0..BODIES_MAX / 64 + 1 {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder.handshake(stream).await.unwrap();
        clients.push(tokio::spawn(connection));
        // As many as the share of one connection allows.
        for _ in 0..64 {
            let request = Request::post(format!("http://{address}/cluster/admit"))
                .header("content-type", "application/json")
                .body(StreamBody::new(futures_util::stream::pending::<Frame>()))
                .unwrap();
            tokio::spawn(sender.send_request(request));
        }
    }
    clients
}

/// A client that sends requests without a pause gets answers meanwhile: they are not kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_stops_sending_gets_answers() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    let (mut reader, mut writer) = TcpStream::connect(&address).await.unwrap().into_split();
    let sender = tokio::spawn(async move {
        let requests = b"GET /timestamp?n=16 HTTP/1.1\r\nhost: a\r\n\r\n".repeat(100);
        while writer.write_all(&requests).await.is_ok() {}
    });
    let mut answers = vec![0; 100_000];
    let read = tokio::time::timeout(TEST_TIMEOUT, reader.read_exact(&mut answers)).await;
    assert!(read.is_ok_and(|read| read.is_ok()) && answers.starts_with(b"HTTP/1.1 200 OK"));
    drop(reader);
    sender.abort();
}

/// 100 connections of 100 streams: each is answered, and all in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_streams_are_answered() {
    // However slow the machine is.
    let nodes = Nodes::with(1, |options| options.oracle.patience = TEST_TIMEOUT).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    let begun = Instant::now();
    let mut connections = Vec::new();
    for _ in 0..100 {
        let address = address.clone();
        connections.push(tokio::spawn(async move {
            let stream = TokioIo::new(TcpStream::connect(&address).await.unwrap());
            let (sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            let mut streams = tokio::task::JoinSet::new();
            for _ in 0..100 {
                let (mut sender, uri) = (sender.clone(), format!("http://{address}/timestamp"));
                streams.spawn(async move {
                    let request = Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
                    let called = begun.elapsed().as_nanos() as u64;
                    sender.ready().await.unwrap();
                    let answer = sender.send_request(request).await.unwrap();
                    let status = answer.status().as_u16();
                    let body = answer.into_body().collect().await.unwrap().to_bytes();
                    let returned = begun.elapsed().as_nanos() as u64;
                    (status, body, called, returned)
                });
            }
            streams.join_all().await
        }));
    }
    let mut calls = Vec::new();
    for connection in connections {
        for (status, body, called, returned) in connection.await.unwrap() {
            assert_eq!(status, 200);
            let first = Timestamp::from_bytes(body[..].try_into().unwrap());
            calls.push(Call { called, returned, range: Range { first, count: 1 } });
        }
    }
    assert_eq!(calls.len(), 10_000);
    check(&calls).unwrap_or_else(|violation| panic!("{violation}"));
}

/// For longer than a request waits: all nodes stay, and serve again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_each_request_is_answered_in_time() {
    let mut nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    nodes.timestamp(leader).await;
    for node in (1..=3).filter(|node| *node != leader) {
        nodes.stop(node).await;
    }
    let address = nodes.address(leader);
    let asked = (0..30).map(|n| {
        let address = address.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(100 * n)).await;
            let asks = get(Protocol::Http1, &address, "/timestamp");
            tokio::time::timeout(Duration::from_secs(4), asks).await.unwrap().status
        })
    });
    for asked in asked.collect::<Vec<_>>() {
        let status = asked.await.unwrap();
        assert_eq!(status, 500);
    }
    // The same process answers again. It knows all members in between.
    assert_eq!(nodes.members(leader).await.members.len(), 3);
    nodes.start(leader % 3 + 1).await.unwrap();
    let leader = nodes.leader().await;
    nodes.timestamp(leader).await;
}

/// Requests that come one at a time to an idle leader, at any moment of its timers: none waits for
/// another one, or for a deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_alone_waits_for_no_other() {
    let nodes = Nodes::with(3, |options| {
        options.round_trip = 2 * CALM_ROUND_TRIP;
        options.oracle.patience = TEST_TIMEOUT;
    })
    .await;
    let leader = nodes.leader().await;
    let address = nodes.address(leader);
    nodes.timestamp(leader).await;
    for n in 0..300 {
        tokio::time::sleep(Duration::from_micros(n * 37 % 11_000)).await;
        let asks = get(Protocol::Http1, &address, "/timestamp");
        let seen = tokio::time::timeout(TEST_TIMEOUT / 2, asks).await.unwrap();
        assert_eq!(seen.status, 200, "request {n}: {}", seen.text());
    }
    let metrics = get(Protocol::Http1, &address, "/metrics").await;
    assert!(metrics.text().contains("esker_requests_late_total 0\n"), "{}", metrics.text());
}
