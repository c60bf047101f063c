//! Sequences over HTTP: statuses, who may do what, and nodes that restart.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Instant;

use esker_server::{CreatedSequence, SequenceEntry, SequenceList, SequenceNumbers};
use serde_json::json;

use crate::client::{ALL, Protocol, send, send_to};
use crate::http_answer::HttpAnswer;
use crate::nodes::{Nodes, TEST_TIMEOUT};
use crate::tls::{TOKEN, token_file};

/// An answer within a second is not sure on a busy machine.
async fn patient_nodes(count: u64) -> Nodes {
    Nodes::with(count, |options| options.oracle.patience = TEST_TIMEOUT).await
}

/// A new key of this node, which leads.
async fn new_key(nodes: &Nodes, node: u64) -> String {
    nodes.timestamp(node).await.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn call(address: &str, method: &str, path: &str) -> HttpAnswer {
    send(Protocol::Http1, address, method, path, &[], b"").await
}

async fn listed(address: &str) -> Vec<(String, u64)> {
    let answer = call(address, "GET", "/sequences").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let SequenceList { sequences } = serde_json::from_slice(&answer.body).unwrap();
    sequences.into_iter().map(|SequenceEntry { name, next }| (name, next)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_a_sequence_are_taken_over_each_protocol() {
    let nodes = patient_nodes(1).await;
    let address = nodes.address(1);
    nodes.timestamp(1).await;
    for protocol in ALL {
        let name = format!("{protocol:?}");
        let path = format!("/sequence/{name}");
        let created = send(protocol, &address, "PUT", &format!("{path}?first=41"), &[], b"").await;
        assert_eq!(created.status, 201, "{}", created.text());
        assert_eq!(created.header("content-type"), Some("application/json"));
        let body: CreatedSequence = serde_json::from_slice(&created.body).unwrap();
        assert_eq!(body, CreatedSequence { name: name.clone(), first: 41 });
        let mut next = 41;
        for n in [1, 3, 65_536, 1] {
            let key = new_key(&nodes, 1).await;
            let path = format!("{path}?n={n}&key={key}");
            // The second try has a body, which is skipped.
            for body in [&b""[..], b"{}"] {
                let taken = send(protocol, &address, "POST", &path, &[], body).await;
                assert_eq!(taken.status, 200, "{}", taken.text());
                assert_eq!(taken.header("access-control-allow-origin"), None);
                let numbers: SequenceNumbers = serde_json::from_slice(&taken.body).unwrap();
                assert_eq!(numbers, SequenceNumbers { name: name.clone(), first: next, n });
            }
            next += u64::from(n);
        }
        let list = send(protocol, &address, "GET", "/sequences", &[], b"").await;
        let expected = json!({ "sequences": [{ "name": name, "next": next }] });
        let list: serde_json::Value = serde_json::from_slice(&list.body).unwrap();
        assert_eq!(list, expected);
        let removed = send(protocol, &address, "DELETE", &path, &[], b"").await;
        assert_eq!((removed.status, removed.text()), (200, "{}"));
        assert!(listed(&address).await.is_empty());
    }
}

/// Statuses and texts, in one order of requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_sequences_have_their_statuses() {
    let nodes = patient_nodes(1).await;
    let address = nodes.address(1);
    let (key, other) = (new_key(&nodes, 1).await, new_key(&nodes, 1).await);
    let ahead = format!("f{}", &key[1..]);
    let cases = [
        ("POST", format!("a?key={key}"), 404, "no sequence"),
        ("DELETE", "a".into(), 404, "no sequence"),
        ("PUT", "a?first=0".into(), 400, "first param"),
        ("PUT", "a?first=9007199254740992".into(), 400, "first param"),
        ("PUT", "a b".replace(' ', "%20"), 400, "name of a sequence"),
        ("PUT", format!("{}?first=2", "x".repeat(65)), 400, "name of a sequence"),
        ("PUT", String::new(), 400, "name of a sequence"),
        ("PUT", "a?first=9007199254740990".into(), 201, "9007199254740990"),
        ("PUT", "a".into(), 422, "there is a sequence"),
        ("PUT", "b".into(), 201, r#"{"name":"b","first":1}"#),
        ("POST", "a".into(), 400, "key param"),
        ("POST", format!("a?key={}", &key[1..]), 400, "key param"),
        ("POST", format!("a?key={key}&n=0"), 400, "n param"),
        ("POST", format!("a?key={key}&n=65537"), 400, "n param"),
        ("POST", format!("a/b?key={key}"), 400, "name of a sequence"),
        ("POST", format!("c?key={key}"), 404, "no sequence"),
        ("POST", format!("a?key={ahead}"), 422, "issued"),
        ("POST", format!("a?key={key}&n=3"), 422, "numbers left"),
        ("POST", format!("a?key={key}&n=2"), 200, r#"{"name":"a","first":9007199254740990,"n":2}"#),
        ("POST", format!("a?key={}&n=2", key.to_uppercase()), 200, "9007199254740990"),
        ("POST", format!("a?key={key}"), 422, "another request"),
        ("POST", format!("b?key={key}&n=2"), 422, "another request"),
        ("POST", format!("a?key={other}"), 422, "numbers left"),
        ("POST", format!("b?key={other}"), 200, r#"{"name":"b","first":1,"n":1}"#),
        ("DELETE", "a".into(), 200, "{}"),
        ("PUT", "a".into(), 201, r#"{"name":"a","first":1}"#),
        ("POST", format!("a?key={key}&n=2"), 422, "another request"),
    ];
    for (method, path, status, text) in cases {
        let answer = call(&address, method, &format!("/sequence/{path}")).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        assert!(answer.text().contains(text), "{method} {path}: {}", answer.text());
        let reason = match text {
            "another request" => Some("key-used"),
            "issued" => Some("key-not-issued"),
            "numbers left" => Some("used-up"),
            _ => None,
        };
        assert_eq!(answer.header("esker-refusal"), reason, "{method} {path}");
    }
    assert_eq!(listed(&address).await, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    for (method, path, allowed) in [
        ("GET", "/sequence/a", "POST, PUT, DELETE"),
        ("OPTIONS", "/sequence/a", "POST, PUT, DELETE"),
        ("POST", "/sequences", "GET, HEAD, OPTIONS"),
    ] {
        let refused = call(&address, method, path).await;
        assert_eq!((refused.status, refused.header("allow")), (405, Some(allowed)));
    }
    assert_eq!(call(&address, "POST", "/sequence").await.status, 404);
    let (metrics, created) = (nodes.metrics(1).await, "esker_http_answers_total{status=\"201\"} 3");
    assert!(metrics.lines().any(|line| line == created), "{metrics}");
}

/// The leader answers alone. What it answered is there after all nodes restarted, also a try of a
/// request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_are_of_the_leader_and_outlive_restarts() {
    let mut nodes = patient_nodes(3).await;
    let leader = nodes.leader().await;
    let key = new_key(&nodes, leader).await;
    let address = nodes.address(leader);
    assert_eq!(call(&address, "PUT", "/sequence/invoices?first=7").await.status, 201);
    let path = format!("/sequence/invoices?n=3&key={key}");
    let taken = call(&address, "POST", &path).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    let follower = nodes.address(leader % 3 + 1);
    for (method, path) in [
        ("POST", &*path),
        ("PUT", "/sequence/b"),
        ("DELETE", "/sequence/invoices"),
        ("GET", "/sequences"),
    ] {
        let refused = call(&follower, method, path).await;
        assert_eq!(refused.status, 409, "{method}: {}", refused.text());
        assert_eq!(refused.header("esker-leader"), Some(&*address), "{method}");
    }
    for node in 1..=3 {
        nodes.stop(node).await;
    }
    for node in 1..=3 {
        let mut options = nodes.options(node);
        options.join = None;
        nodes.start_with(node, options).await.unwrap();
    }
    let deadline = Instant::now() + TEST_TIMEOUT;
    let again = loop {
        let again = call(&nodes.address(nodes.leader().await), "POST", &path).await;
        if again.status == 200 {
            break again;
        }
        assert!(Instant::now() < deadline, "{}", again.text());
    };
    assert_eq!(again.body, taken.body);
}

/// Any client takes numbers; no page does. Creating and removing a sequence is a change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_those_who_may_change_the_cluster_create_sequences() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = Nodes::none();
    let mut options = nodes.options(1);
    options.admin_token_file = Some(token_file(dir.path()));
    options.oracle.patience = TEST_TIMEOUT;
    nodes.start_with(1, options).await.unwrap();
    let (address, key) = (nodes.address(1), new_key(&nodes, 1).await);
    let (token, wrong) = (format!("Bearer {TOKEN}"), "Bearer another-token-of-16");
    let (own, other) = (format!("http://{address}"), "http://page.example");
    let (token, own) = (("authorization", token.as_str()), ("origin", own.as_str()));
    let (wrong, other) = (("authorization", wrong), ("origin", other));
    let cross = ("sec-fetch-site", "cross-site");
    let next = format!("/sequence/a?key={key}");
    let next = next.as_str();
    let cases = [
        ("PUT", "/sequence/a", vec![], 401),
        ("PUT", "/sequence/a", vec![wrong], 401),
        ("PUT", "/sequence/a", vec![token, other], 403),
        ("PUT", "/sequence/a", vec![token, cross], 403),
        ("PUT", "/sequence/a", vec![token, own], 201),
        ("POST", next, vec![other], 403),
        ("POST", next, vec![own], 403),
        ("POST", next, vec![cross], 403),
        ("POST", next, vec![token, own], 403),
        ("POST", next, vec![], 200),
        ("POST", next, vec![wrong], 200),
        ("GET", "/sequences", vec![], 200),
        ("GET", "/sequences", vec![other], 200),
        ("DELETE", "/sequence/a", vec![], 401),
        ("DELETE", "/sequence/a", vec![token, other], 403),
        ("DELETE", "/sequence/a", vec![token], 200),
    ];
    for (method, path, headers, status) in cases {
        let to = (Protocol::Http1, address.as_str(), address.as_str());
        let seen = send_to(to, method, path, &headers, b"").await;
        assert_eq!(seen.status, status, "{method} {path} {headers:?}: {}", seen.text());
        let is_open = seen.header("access-control-allow-origin").is_some();
        assert_eq!(is_open, path == "/sequences", "{method} {path}");
    }
}
