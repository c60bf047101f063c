//! Requests for timestamps to a node while another one leads.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use esker_server::FollowerAnswer;

use crate::client::{ALL, Protocol, get, send};
use crate::nodes::{Nodes, TEST_TIMEOUT, own_port};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_redirects() {
    let mut nodes =
        Nodes::with(3, |options| options.follower_answer = FollowerAnswer::Redirect).await;
    let leader = nodes.leader().await;
    let (follower, leads) = (nodes.address(leader % 3 + 1), nodes.address(leader));
    for protocol in ALL {
        let scheme = if protocol == Protocol::Http3 { "https" } else { "http" };
        for path in ["/timestamp", "/timestamp?n=3&format=range", "/timestamp?n=0"] {
            let seen = get(protocol, &follower, path).await;
            assert_eq!(seen.status, 307, "{seen:?}");
            assert_eq!(seen.header("location"), Some(&*format!("{scheme}://{leads}{path}")));
            assert_eq!(seen.header("esker-leader"), Some(&*leads));
            assert_eq!(seen.header("access-control-allow-origin"), Some("*"));
        }
        assert_eq!(get(protocol, &leads, "/timestamp").await.status, 200);
        assert_eq!(get(protocol, &leads, "/timestamp?n=0").await.status, 400);
        // A node that asks for a client is refused.
        let forwarded = [("esker-forwarded", "9")];
        let seen = send(protocol, &follower, "GET", "/timestamp", &forwarded, b"").await;
        assert_eq!(seen.status, 409);
    }
    without_leader(&mut nodes, leader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_forwards() {
    let mut nodes =
        Nodes::with(3, |options| options.follower_answer = FollowerAnswer::Forward).await;
    let leader = nodes.leader().await;
    let mut last = nodes.timestamp(leader).await;
    for protocol in ALL {
        // One that begins after another ended gets a higher one, whichever node is asked.
        for node in [1, 2, 3, 1, 2, 3] {
            let seen = get(protocol, &nodes.address(node), "/timestamp").await;
            assert_eq!((seen.status, seen.body.len()), (200, 16), "{seen:?}");
            assert_eq!(seen.header("content-type"), Some("application/octet-stream"));
            assert!(seen.body[..] > last[..], "node {node}");
            last = seen.body.to_vec();
        }
        let follower = nodes.address(leader % 3 + 1);
        let long = get(protocol, &follower, "/timestamp?n=65536").await;
        assert_eq!((long.status, long.body.len()), (200, 16 * 65_536));
        let range = get(protocol, &follower, "/timestamp?n=9&format=range").await;
        assert_eq!(range.body[16..], 9_u64.to_be_bytes());
        let wrong = get(protocol, &follower, "/timestamp?n=0").await;
        assert_eq!(wrong.status, 400);
        assert!(wrong.text().starts_with("invalid n param"), "{wrong:?}");
        // Not further than one node.
        let forwarded = [("esker-forwarded", "9")];
        let refused = send(protocol, &follower, "GET", "/timestamp", &forwarded, b"").await;
        assert_eq!(refused.status, 409, "{refused:?}");
        assert_eq!(refused.header("esker-leader"), Some(&*nodes.address(leader)));
        last = nodes.timestamp(leader).await;
    }
    // Many at a time share the connections.
    let address = nodes.address(leader % 3 + 1);
    let before = connections(&nodes, leader).await;
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let address = address.clone();
        asked.spawn(async move { get(Protocol::Http1, &address, "/timestamp").await.status });
    }
    while let Some(status) = asked.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    // Those that ask for the metric are some, too.
    assert!(connections(&nodes, leader).await < before + 10.0);
    // A leader that was replaced, and one that came back under its address.
    nodes.stop(leader).await;
    nodes.start(leader).await.unwrap();
    let deadline = Instant::now() + TEST_TIMEOUT;
    for node in [1, 2, 3] {
        while get(Protocol::Http1, &nodes.address(node), "/timestamp").await.status != 200 {
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let leader = nodes.leader().await;
    without_leader(&mut nodes, leader).await;
}

/// A node that no longer leads says so to the node that forwards; the client is sent to no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_is_not_forwarded() {
    // Where clients find the leader, a node answers that another one leads.
    let deposed = tokio::net::TcpListener::bind(own_port()).await.unwrap();
    let mut nodes = Nodes::none();
    let mut options = nodes.options(1);
    options.advertise = Some(deposed.local_addr().unwrap().to_string());
    options.follower_answer = FollowerAnswer::Forward;
    tokio::spawn(async move {
        let (stream, _) = deposed.accept().await.unwrap();
        let answer = hyper::service::service_fn(async |_| {
            let answer = hyper::Response::builder().status(409).header("esker-leader", "other:1");
            answer.body(http_body_util::Full::new(bytes::Bytes::from("another node leads")))
        });
        let executor = hyper_util::rt::TokioExecutor::new();
        let server = hyper::server::conn::http2::Builder::new(executor);
        drop(server.serve_connection(hyper_util::rt::TokioIo::new(stream), answer).await);
    });
    nodes.start_with(1, options).await.unwrap();
    nodes.change = |options| options.follower_answer = FollowerAnswer::Forward;
    nodes.start(2).await.unwrap();
    nodes.wait_for_voters(2).await;
    let address = nodes.address(2);
    for path in ["/timestamp", "/timestamp?n=300", "/timestamp?n=0"] {
        let seen = get(Protocol::Http1, &address, path).await;
        assert_eq!((seen.status, seen.header("esker-leader")), (500, None), "{seen:?}");
    }
}

/// Connections that a node has accepted.
async fn connections(nodes: &Nodes, node: u64) -> f64 {
    let metrics = get(Protocol::Http1, &nodes.address(node), "/metrics").await;
    let name = "esker_http_connections_accepted_total ";
    let value = metrics.text().lines().find_map(|line| line.strip_prefix(name));
    value.unwrap().parse().unwrap()
}

/// Without a leader every node says so, however it answers otherwise.
async fn without_leader(nodes: &mut Nodes, leader: u64) {
    let (follower, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    nodes.stop_both(other, leader).await;
    let address = nodes.address(follower);
    let deadline = Instant::now() + TEST_TIMEOUT;
    while get(Protocol::Http1, &address, "/ready").await.status != 500 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for protocol in ALL {
        for path in ["/timestamp", "/timestamp?n=0"] {
            let seen = get(protocol, &address, path).await;
            assert_eq!(seen.status, 500, "{path}: {seen:?}");
        }
    }
}
