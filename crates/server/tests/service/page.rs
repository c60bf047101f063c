//! Who may change the cluster with a page in a browser.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::json;

use crate::client::{ALL, Protocol, send_to};
use crate::nodes::Nodes;
use crate::tls::{TOKEN, token_file};

/// The name of a page that was made to resolve to the host of the tests.
const REBOUND_NAME: &str = "rebound.example";

/// On loopback changes need no token: a page whose name was made to resolve there could make them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_of_another_origin_changes_nothing() {
    let nodes = Nodes::start_all(1).await;
    let (address, cluster) = (nodes.address(1), nodes.members(1).await.cluster);
    let port = address.rsplit_once(':').unwrap().1;
    let (local, rebound) = (format!("localhost:{port}"), format!("{REBOUND_NAME}:{port}"));
    let (host, local, rebound) = (address.as_str(), local.as_str(), rebound.as_str());
    let site = |value| ("sec-fetch-site", value);
    // The host of the request, that of its origin, and its relation to the page.
    let cases = [
        (host, None, None, 200),
        (host, Some(host), None, 200),
        (host, Some(host), Some(site("same-origin")), 200),
        (local, Some(local), None, 200),
        (host, Some(local), None, 403),
        (host, Some("127.0.0.1:1"), None, 403),
        (host, Some(rebound), None, 403),
        (host, Some(host), Some(site("same-site")), 403),
        (host, Some(host), Some(site("cross-site")), 403),
        (host, None, Some(site("cross-site")), 403),
        (rebound, Some(rebound), None, 403),
        (rebound, Some(rebound), Some(site("same-origin")), 403),
        (rebound, None, None, 403),
    ];
    let body = json!({ "cluster": cluster, "nodeID": 1 }).to_string();
    for protocol in ALL {
        let scheme = if protocol == Protocol::Http3 { "https" } else { "http" };
        for (host, origin, site, status) in cases {
            let origin = origin.map(|origin| format!("{scheme}://{origin}"));
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(origin.as_deref().map(|origin| ("origin", origin)));
            headers.extend(site);
            let to = (protocol, address.as_str(), host);
            let seen = send_to(to, "POST", "/cluster/transfer", &headers, body.as_bytes()).await;
            assert_eq!(seen.status, status, "{protocol:?} {host} {headers:?}: {}", seen.text());
            assert_eq!(seen.header("access-control-allow-origin"), None);
        }
        let seen = send_to((protocol, &address, rebound), "GET", "/members", &[], b"").await;
        assert_eq!(seen.status, 200, "reading is open");
    }
}

/// A token proves who asks, whatever the name of the node; and no other page has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_with_a_token_is_of_any_host_and_of_no_other_origin() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = Nodes::none();
    let mut options = nodes.options(1);
    options.admin_token_file = Some(token_file(dir.path()));
    nodes.start_with(1, options).await.unwrap();
    nodes.timestamp(1).await;
    let (address, cluster) = (nodes.address(1), nodes.members(1).await.cluster);
    let body = json!({ "cluster": cluster, "nodeID": 1 }).to_string();
    let (token, wrong) = (format!("Bearer {TOKEN}"), "Bearer another-token-of-16".to_owned());
    for (origin, token, status) in [
        ("http://node.example", Some(&token), 200),
        ("http://node.example", Some(&wrong), 401),
        ("http://node.example", None, 401),
        ("http://page.example", Some(&token), 403),
        ("null", Some(&token), 403),
    ] {
        let mut headers = vec![("content-type", "application/json"), ("origin", origin)];
        headers.extend(token.map(|token| ("authorization", token.as_str())));
        let to = (Protocol::Http1, address.as_str(), "node.example");
        let seen = send_to(to, "POST", "/cluster/transfer", &headers, body.as_bytes()).await;
        assert_eq!(seen.status, status, "{headers:?}: {}", seen.text());
    }
}
