//! Each endpoint on a leader, on a follower, and on a node without a leader.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::client::{ALL, Protocol, get, send};
use crate::clock::metric;
use crate::nodes::{Nodes, TEST_TIMEOUT};

/// The paths of clients, with status and body, over each protocol.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_answers() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    for protocol in ALL {
        let up = get(protocol, &address, "/up").await;
        assert_eq!((up.status, up.text()), (200, "ok"));
        let ready = get(protocol, &address, "/ready").await;
        let expected = "leader=1 nodeID=1 raftAvailable=true\n";
        assert_eq!((ready.status, ready.text()), (200, expected));
        for path in ["/members", "/membership"] {
            let members = get(protocol, &address, path).await;
            let members: serde_json::Value = serde_json::from_slice(&members.body).unwrap();
            assert_eq!(members["leader"]["nodeID"], 1, "{members}");
            assert_eq!(members["leader"]["addr"], address.as_str());
            assert_eq!(members["members"][0]["nodeID"], 1);
        }
        let first = get(protocol, &address, "/timestamp").await;
        assert_eq!((first.status, first.body.len()), (200, 16));
        assert_eq!(first.header("content-type"), Some("application/octet-stream"));
        let next = get(protocol, &address, "/timestamp?n=3").await;
        assert_eq!((next.status, next.body.len()), (200, 48));
        assert!(next.body[..16] > first.body[..], "{first:?} {next:?}");
        assert!(next.body.chunks(16).is_sorted());
        let range = get(protocol, &address, "/timestamp?n=65536&format=range").await;
        assert_eq!((range.status, range.body.len()), (200, 24));
        assert_eq!(range.body[16..], 65_536_u64.to_be_bytes());
        let metrics = get(protocol, &address, "/metrics").await;
        assert!(metrics.text().contains("esker_leader 1.0"), "{}", metrics.text());
        assert!(metrics.text().contains("esker_timestamp_latency_seconds_count"));
        let status = get(protocol, &address, "/status").await;
        assert!(status.text().contains(r#""role":"leader""#), "{}", status.text());
    }
}

/// Timestamps of both forms are in the order in which they were asked for, also when those of an
/// epoch are used up: five requests have more than it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamps_of_64_bits_are_in_the_order_of_all() {
    let nodes = Nodes::with(1, |options| {
        options.oracle.epoch_interval = Duration::from_secs(3600);
    })
    .await;
    let address = nodes.address(1);
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    let epoch_advances = metric(&nodes, 1, "esker_epoch_advances_total").await;
    for protocol in ALL {
        let mut last = 0;
        for (n, format) in (0..6).flat_map(|_| [(65_536, "u64"), (1, "list"), (3, "u64-range")]) {
            let path = format!("/timestamp?n={n}&format={format}");
            let answer = get(protocol, &address, &path).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let all: Vec<u64> = match format {
                "u64" => answer.body.chunks(8).map(number).collect(),
                "list" => {
                    let (epoch, index) = (number(&answer.body[..8]), number(&answer.body[8..]));
                    vec![((epoch / 1_000_000) << 18) + index]
                }
                _ => {
                    assert_eq!((answer.body.len(), number(&answer.body[8..])), (16, 3));
                    (0..3).map(|at| number(&answer.body[..8]) + at).collect()
                }
            };
            assert_eq!(all.len(), n);
            for one in all {
                assert!(one > last, "{path}: {one} after {last}");
                last = one;
            }
        }
    }
    let advances = metric(&nodes, 1, "esker_epoch_advances_total").await - epoch_advances;
    assert!(advances >= 3.0, "{advances} advances");
}

/// 404 for the paths, and 405 with the allowed methods.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_and_methods_that_are_not_there() {
    let nodes = Nodes::start_all(1).await;
    let address = nodes.address(1);
    for protocol in ALL {
        for path in ["/page", "/timestamps", "/timestamp/", "/UP", "/cluster"] {
            assert_eq!(get(protocol, &address, path).await.status, 404, "{path}");
        }
        for method in ["POST", "PUT", "DELETE", "PATCH", "HEAD"] {
            let refused = send(protocol, &address, method, "/timestamp", &[], b"").await;
            assert_eq!(refused.status, 405, "{method}");
            assert_eq!(refused.header("allow"), Some("GET, OPTIONS"));
        }
        assert_eq!(get(protocol, &address, "/cluster/add").await.status, 405);
        let head = send(protocol, &address, "HEAD", "/up", &[], b"").await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        // A page of another origin may read, and may not change.
        for path in ["/timestamp", "/up", "/members", "/nothing"] {
            let seen = get(protocol, &address, path).await;
            assert_eq!(seen.header("access-control-allow-origin"), Some("*"), "{path}");
            assert!(seen.header("x-request-id").unwrap().parse::<u64>().is_ok());
            let headers = [("origin", "https://page.example")];
            let seen = send(protocol, &address, "GET", path, &headers, b"").await;
            let exposed = seen.header("access-control-expose-headers").unwrap();
            for name in ["Esker-Leader", "Retry-After", "X-Request-Id"] {
                assert!(exposed.split(", ").any(|one| one == name), "{path}: {exposed}");
            }
        }
        let preflight = send(protocol, &address, "OPTIONS", "/timestamp", &[], b"").await;
        assert_eq!(preflight.status, 204);
        assert_eq!(preflight.header("access-control-allow-methods"), Some("GET, OPTIONS"));
        let preflight = send(protocol, &address, "OPTIONS", "/cluster/remove", &[], b"").await;
        assert_eq!(preflight.status, 405);
        assert_eq!(preflight.header("access-control-allow-origin"), None);
    }
}

/// A count is checked after the leader is known: 500, 409, 400.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_names_the_leader_and_a_node_without_one_says_so() {
    let mut nodes = Nodes::start_all(3).await;
    let leader = nodes.leader().await;
    let follower = leader % 3 + 1;
    let address = nodes.address(follower);
    for protocol in ALL {
        for path in ["/timestamp", "/timestamp?n=0"] {
            let refused = get(protocol, &address, path).await;
            assert_eq!(refused.status, 409, "{refused:?}");
            let expected = format!("node ({follower}) is not the leader ({leader})");
            assert_eq!(refused.text(), expected);
            assert_eq!(refused.header("esker-leader"), Some(&*nodes.address(leader)));
        }
        let wrong = get(protocol, &nodes.address(leader), "/timestamp?n=0").await;
        assert_eq!(wrong.status, 400);
        assert!(wrong.text().starts_with("invalid n param, must be a number >= 1"));
        let ready = get(protocol, &address, "/ready").await;
        let expected = format!("leader={leader} nodeID={follower} raftAvailable=true\n");
        assert_eq!(ready.text(), expected);
        for node in 1..=3 {
            answers_what_needs_no_leader(protocol, &nodes.address(node), Some(leader)).await;
        }
    }
    let other = follower % 3 + 1;
    let before = nodes.timestamp(leader).await;
    nodes.stop_both(other, leader).await;
    // It notices when it is not elected.
    for protocol in ALL {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while get(protocol, &address, "/ready").await.status != 500 {
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let ready = get(protocol, &address, "/ready").await;
        assert_eq!(ready.text(), "raft leadership not ready");
        for path in ["/timestamp", "/timestamp?n=0"] {
            assert_eq!(get(protocol, &address, path).await.status, 500, "{path}");
        }
        // What it knows needs no quorum.
        answers_what_needs_no_leader(protocol, &address, None).await;
    }
    for back in [leader, other] {
        nodes.start(back).await.unwrap();
    }
    let leader = nodes.wait_for_voters(3).await;
    assert!(nodes.timestamp(leader).await > before);
}

/// Answers of every node, whether it leads, follows or knows no leader.
async fn answers_what_needs_no_leader(protocol: Protocol, address: &str, leader: Option<u64>) {
    let up = get(protocol, address, "/up").await;
    assert_eq!((up.status, up.text()), (200, "ok"));
    for path in ["/members", "/membership"] {
        let members = get(protocol, address, path).await;
        assert_eq!(members.status, 200);
        assert_eq!(members.header("access-control-allow-origin"), Some("*"));
        let members: serde_json::Value = serde_json::from_slice(&members.body).unwrap();
        assert_eq!(members["leader"]["nodeID"].as_u64(), leader, "{members}");
        let all = members["members"].as_array().unwrap();
        let ids: Vec<_> = all.iter().map(|member| member["nodeID"].as_u64().unwrap()).collect();
        assert_eq!(ids, [1, 2, 3]);
        let is_address = |member: &serde_json::Value| {
            member["addr"].as_str().is_some_and(|addr| addr.parse::<SocketAddr>().is_ok())
        };
        assert!(all.iter().all(is_address), "{members}");
        let own = all.iter().filter(|member| member["addr"] == address).count();
        assert_eq!(own, 1, "{members}");
    }
    for path in ["/status", "/metrics"] {
        assert_eq!(get(protocol, address, path).await.status, 200, "{path}");
    }
    assert_eq!(get(protocol, address, "/nothing").await.status, 404);
    let refused = send(protocol, address, "PUT", "/timestamp", &[], b"").await;
    assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, OPTIONS")));
    let preflight = send(protocol, address, "OPTIONS", "/timestamp", &[], b"").await;
    assert_eq!(preflight.status, 204);
}
