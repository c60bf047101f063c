//! Connections of clients: how requests come over them, and how many there are.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_server::ServerOptions;
use http_body_util::StreamBody;
use hyper::Request;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{BOTH, Protocol, get, post};
use crate::nodes::{Nodes, TEST_TIMEOUT};

/// Returns the answer to this request, whose sender then closes its half of the connection.
async fn half_closed(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut seen = Vec::new();
    tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut seen)).await.unwrap().unwrap();
    String::from_utf8_lossy(&seen).into_owned()
}

/// `nc -N` got no answer: its connection ended while the request was being answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_closes_its_half_gets_its_answer() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    for _ in 0..20 {
        for path in ["/timestamp?n=1000", "/up"] {
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
            let seen = half_closed(&address, &request).await;
            assert!(seen.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {seen:?}");
        }
    }
    let body = r#"{"cluster":"","nodeID":7}"#;
    let change = format!(
        "POST /cluster/admit HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let seen = half_closed(&address, &change).await;
    assert!(seen.starts_with("HTTP/1.1 422 "), "{seen}");
}

/// Requests without a host were answered, and so were those with two, which a proxy before the node
/// may have read differently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_has_one_host() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    for (version, hosts, status) in [
        ("1.1", "", "400"),
        ("1.1", "host: a\r\nhost: a\r\n", "400"),
        ("1.1", "host: a\r\nHost: b\r\n", "400"),
        ("1.1", "host: a b\r\n", "400"),
        ("1.1", "host: user@a\r\n", "400"),
        ("1.1", "host: a/b\r\n", "400"),
        ("1.0", "host: a\r\nhost: b\r\n", "400"),
        ("1.1", "host:\r\n", "200"),
        ("1.1", "host: node_1.example:8080\r\n", "200"),
        ("1.1", "host: [::1]:8080\r\n", "200"),
        ("1.0", "host: a\r\n", "200"),
        ("1.0", "", "200"),
    ] {
        for path in ["/up", "/timestamp"] {
            let request = format!("GET {path} HTTP/{version}\r\n{hosts}\r\n");
            let seen = half_closed(&address, &request).await;
            assert_eq!(seen.get(9..12), Some(status), "{request:?}: {seen:?}");
        }
    }
}

/// Whether a malformed request was refused, or answered before its end came, was a matter of luck.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_comes_after_the_request() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    let stream = TokioIo::new(TcpStream::connect(&address).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let (ends, body) = tokio::sync::oneshot::channel::<()>();
    let body = Box::pin(futures_util::stream::once(async move {
        body.await.unwrap();
        Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(b"x")))
    }));
    let request = Request::post(format!("http://{address}/up")).body(StreamBody::new(body));
    let mut answer = tokio::spawn(sender.send_request(request.unwrap()));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut answer).await;
    assert!(early.is_err(), "{early:?}");
    ends.send(()).unwrap();
    assert_eq!(answer.await.unwrap().unwrap().status(), 405);
}

/// Opens a connection that has been accepted.
async fn open(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /up HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut seen = [0; 12];
    stream.read_exact(&mut seen).await.unwrap();
    assert_eq!(&seen, b"HTTP/1.1 200");
    stream
}

/// When clients had all connections, health checks and Prometheus waited behind them, and nothing
/// said why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_checks_have_places_of_their_own() {
    let set = |options: &mut ServerOptions| options.connections_max = 2;
    let nodes = Nodes::with(1, set).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    // Those of this test that ended may have their places for a moment.
    let (deadline, mut clients) = (Instant::now() + TEST_TIMEOUT, Vec::new());
    while clients.len() < 2 {
        assert!(Instant::now() < deadline);
        let mut client = open(&address).await;
        client.write_all(b"GET /timestamp HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut seen = vec![0; 4096];
        let mut read = 0;
        while !seen[..read].windows(9).any(|part| part == b"HTTP/1.1 ") {
            match client.read(&mut seen[read..]).await.unwrap_or_default() {
                0 => break,
                more => read += more,
            }
        }
        let answer = String::from_utf8_lossy(&seen[..read]).into_owned();
        // One in the reserve has ended.
        if answer.contains("HTTP/1.1 200") {
            clients.push(client);
        }
    }
    for protocol in BOTH {
        for path in ["/up", "/ready", "/metrics", "/members", "/status", "/clock"] {
            let seen =
                tokio::time::timeout(TEST_TIMEOUT, get(protocol, &address, path)).await.unwrap();
            assert_eq!(seen.status, 200, "{path}");
            let closes = (protocol == Protocol::Http1).then_some("close");
            assert_eq!(seen.header("connection"), closes, "{path}");
        }
        let refused = get(protocol, &address, "/timestamp").await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    }
    assert_eq!(post(&address, "/cluster/admit", "{}").await.status, 503);
    let metrics = get(Protocol::Http1, &address, "/metrics").await;
    let beyond = metrics.text().lines().find_map(|line| {
        line.strip_prefix("esker_http_connections_over_limit_total ")?.parse::<f64>().ok()
    });
    assert!(beyond.is_some_and(|beyond| beyond >= 16.0), "{beyond:?}");
    // Strangers that send nothing have no place of the reserve for long.
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    let seen =
        tokio::time::timeout(TEST_TIMEOUT, get(Protocol::Http1, &address, "/up")).await.unwrap();
    assert_eq!(seen.status, 200);
    // Places that are free again are for clients.
    drop((clients, silent));
    let deadline = Instant::now() + TEST_TIMEOUT;
    while get(Protocol::Http1, &address, "/timestamp").await.status != 200 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
