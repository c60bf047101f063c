//! Calls of single nodes, and changes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use esker_client::{AttemptErrorKind, CallError, Error, NodeCaller};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::authority::{Authority, tls_front};
use crate::fake::{Reply, TEST_TIMEOUT, raw_server};

const CHANGE: &str = "/cluster/transfer";
const TOKEN: &str = "0123456789abcdef";
/// The patience of changes that no node makes. Several attempts have less than this.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);

/// A request: its method, path, token and body.
type ReceivedRequest = (String, String, Option<String>, String);

/// A node that gives this answer to all but `GET /up`, and the requests that it got.
async fn node(reply: Reply) -> (String, Arc<Mutex<Vec<ReceivedRequest>>>) {
    server(Reply::new(200, "ok"), reply).await
}

/// A server that gives the answer `up` to `GET /up`, and `reply` to all else.
async fn server(up: Reply, reply: Reply) -> (String, Arc<Mutex<Vec<ReceivedRequest>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (up, reply, kept) = (up.clone(), reply.clone(), Arc::clone(&kept));
            let answer = service_fn(move |request: Request<Incoming>| {
                let (up, reply, kept) = (up.clone(), reply.clone(), Arc::clone(&kept));
                async move {
                    let (head, body) = request.into_parts();
                    let token = head.headers.get("authorization");
                    let token = token.map(|token| token.to_str().unwrap().to_owned());
                    let body = body.collect().await.unwrap().to_bytes().to_vec();
                    let path = head.uri.path().to_owned();
                    let reply = if path == "/up" { up } else { reply };
                    let method = head.method.to_string();
                    kept.lock().push((method, path, token, String::from_utf8(body).unwrap()));
                    let mut answer = Response::builder().status(reply.status);
                    for (name, value) in reply.headers {
                        answer = answer.header(name, value);
                    }
                    Ok::<_, Infallible>(answer.body(Full::new(Bytes::from(reply.body))).unwrap())
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    (address, seen)
}

/// The requests of the list that were changes.
fn changes(seen: &Mutex<Vec<ReceivedRequest>>) -> Vec<ReceivedRequest> {
    seen.lock().iter().filter(|(method, ..)| method == "POST").cloned().collect()
}

async fn change(caller: &NodeCaller) -> Result<u16, CallError> {
    let answer = caller.change(&[], CHANGE, b"{}", TEST_TIMEOUT).await;
    answer.map(|answer| answer.status)
}

#[tokio::test]
async fn leader_gets_a_change_with_its_token_over_tls() {
    let authority = Authority::new();
    let config = || authority.server(&authority.pair(&["127.0.0.1"]), None);
    let (leader, at_leader) = node(Reply::new(200, "done")).await;
    let leader = tls_front(&leader, config()).await;
    let (follower, at_follower) = node(Reply::not_leader(&leader)).await;
    let follower = tls_front(&follower, config()).await;
    let endpoint = format!("https://{follower}");
    let caller = NodeCaller::new([endpoint], Some(authority.options())).unwrap();
    let caller = caller.token(TOKEN).unwrap();
    assert_eq!(change(&caller).await.unwrap(), 200);
    let sent = Some(format!("Bearer {TOKEN}"));
    let expected = vec![("POST".to_owned(), CHANGE.to_owned(), sent, "{}".to_owned())];
    assert_eq!((changes(&at_follower), changes(&at_leader)), (expected.clone(), expected));
    let read = caller.get(&follower, "/members", TEST_TIMEOUT).await.unwrap();
    assert_eq!(read.status, 409);
    let with_token = |seen: &ReceivedRequest| seen.0 == "GET" && seen.2.is_some();
    assert!(!at_follower.lock().iter().any(with_token), "what only reads needs no token");
}

/// Changes of all methods have the token and JSON; what is only read has neither.
#[tokio::test]
async fn leader_gets_requests_of_each_method() {
    let (leader, at_leader) = node(Reply::new(200, "done")).await;
    let (follower, at_follower) = node(Reply::not_leader(&leader)).await;
    let caller = NodeCaller::new([&follower], None).unwrap().token(TOKEN).unwrap();
    let put = caller.put(&[], "/sequence/a", TEST_TIMEOUT).await.unwrap();
    let deleted = caller.delete(&[], "/sequence/a", TEST_TIMEOUT).await.unwrap();
    let read = caller.get_from_leader(&[], "/sequences", TEST_TIMEOUT).await.unwrap();
    assert_eq!([put.status, deleted.status, read.status], [200; 3]);
    let token = || Some(format!("Bearer {TOKEN}"));
    let sent = |method: &str, path: &str, token, body: &str| {
        (method.to_owned(), path.to_owned(), token, body.to_owned())
    };
    let expected = [
        sent("PUT", "/sequence/a", token(), "{}"),
        sent("DELETE", "/sequence/a", token(), "{}"),
        sent("GET", "/sequences", None, ""),
    ];
    for seen in [at_follower, at_leader] {
        let seen = seen.lock();
        let requests: Vec<_> = seen.iter().filter(|(_, path, ..)| path != "/up").collect();
        assert_eq!(requests, expected.iter().collect::<Vec<_>>());
    }
}

/// Another try would be denied, too, and may lock an operator out.
#[tokio::test]
async fn change_that_is_denied_is_not_repeated() {
    for status in [401, 403] {
        let (address, seen) = node(Reply::new(status, "give a token")).await;
        let caller = NodeCaller::new([&address], None).unwrap();
        for caller in [caller.clone(), caller.token(TOKEN).unwrap()] {
            let error = change(&caller).await.unwrap_err();
            assert_eq!(error.attempt.address, address);
            let denied = AttemptErrorKind::Denied { status, text: "give a token".into() };
            assert_eq!((error.attempt.kind, error.may_still_happen), (denied, false));
        }
        assert_eq!(changes(&seen).len(), 2, "one for each caller");
    }
}

/// A node may have other options than the leader has.
#[tokio::test]
async fn each_node_is_asked_once_until_one_does_not_deny() {
    let (first, at_first) = node(Reply::new(401, "no token")).await;
    let (second, at_second) = node(Reply::new(403, "never")).await;
    let caller = NodeCaller::new([&first, &second], None).unwrap();
    let error = change(&caller).await.unwrap_err();
    let denied = AttemptErrorKind::Denied { status: 403, text: "never".into() };
    assert_eq!((error.attempt.address, error.attempt.kind), (second.clone(), denied));
    assert_eq!([changes(&at_first).len(), changes(&at_second).len()], [1, 1]);
    let (leader, at_leader) = node(Reply::new(200, "done")).await;
    let members = [first.clone(), second, leader];
    let answer = caller.change(&members, CHANGE, b"{}", TEST_TIMEOUT).await.unwrap();
    assert_eq!((answer.status, changes(&at_leader).len()), (200, 1));
    assert_eq!([changes(&at_first).len(), changes(&at_second).len()], [2, 2]);
    // The word of the leader is the last one.
    let (follower, at_follower) = node(Reply::not_leader(&first)).await;
    let caller = NodeCaller::new([&follower], None).unwrap();
    let error = change(&caller).await.unwrap_err();
    assert_eq!(error.attempt.address, first);
    assert_eq!([changes(&at_first).len(), changes(&at_follower).len()], [3, 2]);
}

/// A token goes to nodes alone. The port of a node that speaks TLS answers 400 without TLS.
#[tokio::test]
async fn token_is_sent_only_where_a_node_answers() {
    let (leader, at_leader) = node(Reply::new(200, "done")).await;
    for (up, expected) in [
        (Reply::new(400, "no"), AttemptErrorKind::Status { status: 400, text: "no".into() }),
        (Reply::new(503, ""), AttemptErrorKind::Status { status: 503, text: String::new() }),
        (
            Reply::new(200, "<html>"),
            AttemptErrorKind::NotANode("it answers GET /up otherwise".into()),
        ),
    ] {
        let (stranger, seen) = server(up, Reply::new(200, "done")).await;
        let caller = NodeCaller::new([&stranger], None).unwrap().token(TOKEN).unwrap();
        let error = caller.change(&[], CHANGE, b"{}", SHORT_PATIENCE).await.unwrap_err();
        assert_eq!((error.attempt.kind, error.may_still_happen), (expected, false));
        let members = [leader.clone()];
        let answer = caller.change(&members, CHANGE, b"{}", TEST_TIMEOUT).await.unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(changes(&seen), []);
    }
    assert_eq!(changes(&at_leader).len(), 3);
}

/// Only 503 says that nothing was done.
#[tokio::test]
async fn change_that_may_have_been_made_is_not_repeated() {
    let (address, seen) = node(Reply::new(500, "no quorum")).await;
    let error = change(&NodeCaller::new([&address], None).unwrap()).await.unwrap_err();
    let text = "no quorum".into();
    assert_eq!(error.attempt.kind, AttemptErrorKind::Status { status: 500, text });
    assert!(error.may_still_happen);
    assert_eq!(changes(&seen).len(), 1);
    let (address, seen) = node(Reply::new(503, "busy")).await;
    let caller = NodeCaller::new([&address], None).unwrap();
    let error = caller.change(&[], CHANGE, b"{}", SHORT_PATIENCE).await.unwrap_err();
    assert_eq!(error.attempt.kind, AttemptErrorKind::Status { status: 503, text: "busy".into() });
    assert!(!error.may_still_happen && changes(&seen).len() > 1);
}

/// Bug: both were "no Esker node answers there", without the reason.
#[tokio::test]
async fn lost_connection_is_not_a_malformed_answer() {
    let kind = async |answer: &'static [u8]| {
        let address = raw_server(answer).await;
        let caller = NodeCaller::new([&address], None).unwrap();
        let error = caller.get(&address, "/members", TEST_TIMEOUT).await.unwrap_err();
        assert!(error.may_still_happen);
        error.attempt.kind
    };
    let AttemptErrorKind::Connection(lost) = kind(b"").await else { panic!("it was lost") };
    assert!(lost.contains("closed before") && lost.contains("address for clients"), "{lost}");
    let AttemptErrorKind::NotANode(why) = kind(b"SSH-2.0-OpenSSH_9.6\r\n").await else {
        panic!("it is no HTTP")
    };
    assert!(why.contains("invalid HTTP version"), "{why}");
    // hyper says that it reads a body, and its source that the connection ended.
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n[";
    let AttemptErrorKind::Connection(lost) = kind(cut).await else { panic!("it was lost") };
    assert!(lost.contains("body") && lost.contains("end of file"), "{lost}");
}

/// A process that is stopped accepts connections, and answers nothing.
#[tokio::test]
async fn node_that_answers_nothing_does_not_hold_up_a_change() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = (silent.local_addr().unwrap().to_string(), silent);
    let (leader, seen) = node(Reply::new(200, "done")).await;
    let caller = NodeCaller::new([&silent.0], None).unwrap();
    let answer = caller.change(&[leader], CHANGE, b"{}", TEST_TIMEOUT).await.unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "done"));
    assert_eq!(changes(&seen).len(), 1);
}

/// A token goes to hosts, and to nothing else that a node names.
#[tokio::test]
async fn leader_that_is_no_address_is_not_followed() {
    let (address, _) = node(Reply::not_leader("http://elsewhere/")).await;
    assert_eq!(change(&NodeCaller::new([&address], None).unwrap()).await.unwrap(), 409);
}

#[test]
fn invalid_tokens_are_refused() {
    let caller = NodeCaller::new(["127.0.0.1:1"], None).unwrap();
    for wrong in ["", "two words", "line\nline", "caf\u{e9}", "nul\0"] {
        let error = caller.clone().token(wrong).unwrap_err();
        assert!(matches!(error, Error::InvalidToken), "{wrong:?}");
    }
    let shown = format!("{:?}", caller.token("secret-secret-secret").unwrap());
    assert!(!shown.contains("secret-secret"), "{shown}");
}
