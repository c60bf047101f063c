//! Clients that send what is no request, half of one, or too much.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{ALL, Protocol, get, send};
use crate::nodes::{Nodes, TEST_TIMEOUT};

/// Returns the answer to these bytes, until the connection ends.
async fn raw(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may have closed it before it took all of them.
    drop(stream.write_all(bytes).await);
    drop(stream.shutdown().await);
    let mut seen = Vec::new();
    drop(tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut seen)).await.unwrap());
    seen
}

/// 400 for a count that is no number from 1 to the most; others get that many, of one epoch,
/// consecutive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_is_none_is_refused() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    for protocol in ALL {
        for n in ["0", "-1", "abc", "", "65537", "9223372036854775808", "1e3", "%31"] {
            let refused = get(protocol, &address, &format!("/timestamp?n={n}")).await;
            assert_eq!(refused.status, 400, "{n}");
        }
        for (query, count) in [("", 1), ("?n=1", 1), ("?n=2", 2), ("?n=65536", 65_536)] {
            let issued = get(protocol, &address, &format!("/timestamp{query}")).await;
            assert_eq!((issued.status, issued.body.len()), (200, 16 * count), "{query}");
            let (epoch, begin) = (&issued.body[..8], &issued.body[8..16]);
            let begin = u64::from_be_bytes(begin.try_into().unwrap());
            for (index, timestamp) in (0_u64..).zip(issued.body.chunks(16)) {
                assert_eq!(timestamp[..8], *epoch);
                assert_eq!(timestamp[8..], (begin + index).to_be_bytes());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_most_timestamps_of_a_request_are_a_setting() {
    let nodes = Nodes::with(1, |options| options.oracle.max_timestamps = 3).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    assert_eq!(get(Protocol::Http1, &address, "/timestamp?n=3").await.body.len(), 48);
    let refused = get(Protocol::Http1, &address, "/timestamp?n=4").await;
    let expected = "invalid n param, must be a number >= 1 and <= 3 if provided";
    assert_eq!((refused.status, refused.text()), (400, expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_its_connection_only() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    let raft = nodes.servers[&1].raft_address().to_string();
    let mut state = 1_u64;
    for round in 0..200 {
        let mut bytes = Vec::new();
        for _ in 0..(round * 7 % 300) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.push((state >> 33) as u8);
        }
        if round % 4 == 0 {
            bytes.splice(0..0, *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        }
        raw(&address, &bytes).await;
        raw(&raft, &bytes).await;
    }
    for half in ["GET /timest", "GET /timestamp HTTP/1.1\r\nhost: a\r\n", "PRI * HT"] {
        raw(&address, half.as_bytes()).await;
    }
    let answer = raw(&address, b"GET /up HTTP/9.9\r\n\r\n").await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
    assert_eq!(nodes.timestamp(1).await.len(), 16);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_is_bounded() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    let mut long = b"GET /up HTTP/1.1\r\nhost: a\r\nx: ".to_vec();
    long.resize(1 << 20, b'x');
    let answer = raw(&address, &long).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{} bytes", answer.len());
    let many = "x: y\r\n".repeat(1000);
    let many = format!("GET /up HTTP/1.1\r\nhost: a\r\n{many}\r\n");
    let answer = raw(&address, many.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{} bytes", answer.len());
    let value = "y".repeat(12 << 10);
    let seen = send(Protocol::Http1, &address, "GET", "/up", &[("x", &value)], b"").await;
    assert_eq!(seen.status, 200);
    let uri = format!("/timestamp?n=1&x={}", "y".repeat(8 << 10));
    assert_eq!(get(Protocol::Http1, &address, &uri).await.status, 200);
}

/// Connections that send nothing, or a byte now and then, take nothing from the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_disturb_no_other() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    let mut slow = Vec::new();
    for _ in 0..300 {
        slow.push(TcpStream::connect(&address).await.unwrap());
    }
    for (at, byte) in b"GET /timestamp HTTP/1.1".iter().enumerate() {
        for stream in slow.iter_mut().skip(at).step_by(3) {
            stream.write_all(&[*byte]).await.unwrap();
        }
        assert_eq!(nodes.timestamp(1).await.len(), 16);
    }
}

/// A node that stops waits for the requests that it has, not for connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_connections_do_not_keep_a_node() {
    let mut nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    let mut idle = TcpStream::connect(&address).await.unwrap();
    idle.write_all(b"GET /up HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut seen = [0; 12];
    idle.read_exact(&mut seen).await.unwrap();
    assert_eq!(&seen, b"HTTP/1.1 200");
    let mut half = TcpStream::connect(&address).await.unwrap();
    half.write_all(b"GET /up HTTP/1.1\r\nho").await.unwrap();
    // Accepted after it.
    assert_eq!(get(Protocol::Http1, &address, "/up").await.status, 200);
    tokio::time::timeout(Duration::from_secs(9), nodes.stop(1)).await.unwrap();
    assert!(TcpStream::connect(&address).await.is_err());
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
}
