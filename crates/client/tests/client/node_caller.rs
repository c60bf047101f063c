//! Calls of single nodes, and changes.
#![allow(clippy::unwrap_used)]

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
use crate::fake::{Reply, TEST_TIMEOUT};

const CHANGE: &str = "/cluster/transfer";
const TOKEN: &str = "0123456789abcdef";

/// A request: its method, path, token and body.
type ReceivedRequest = (String, String, Option<String>, String);

/// A node that gives this answer to all but `GET /up`, and the requests that it got.
async fn node(reply: Reply) -> (String, Arc<Mutex<Vec<ReceivedRequest>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (reply, kept) = (reply.clone(), Arc::clone(&kept));
            let answer = service_fn(move |request: Request<Incoming>| {
                let (reply, kept) = (reply.clone(), Arc::clone(&kept));
                async move {
                    let (head, body) = request.into_parts();
                    let token = head.headers.get("authorization");
                    let token = token.map(|token| token.to_str().unwrap().to_owned());
                    let body = body.collect().await.unwrap().to_bytes().to_vec();
                    let path = head.uri.path().to_owned();
                    let reply = if path == "/up" { Reply::new(200, "") } else { reply };
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

/// Another try would be refused, too, and may lock an operator out.
#[tokio::test]
async fn change_that_is_denied_is_not_repeated() {
    for status in [401, 403] {
        let (address, seen) = node(Reply::new(status, "give a token")).await;
        let caller = NodeCaller::new([&address], None).unwrap();
        for caller in [caller.clone(), caller.token(TOKEN).unwrap()] {
            let error = change(&caller).await.unwrap_err();
            assert_eq!(error.attempt.address, address);
            let denied = AttemptErrorKind::Denied(status, "give a token".into());
            assert_eq!((error.attempt.kind, error.may_still_happen), (denied, false));
        }
        assert_eq!(changes(&seen).len(), 2, "one for each caller");
    }
}

/// Only 503 says that nothing was done.
#[tokio::test]
async fn change_that_may_have_been_made_is_not_repeated() {
    let (address, seen) = node(Reply::new(500, "no quorum")).await;
    let error = change(&NodeCaller::new([&address], None).unwrap()).await.unwrap_err();
    assert_eq!(error.attempt.kind, AttemptErrorKind::Status(500, "no quorum".into()));
    assert!(error.may_still_happen);
    assert_eq!(changes(&seen).len(), 1);
    let (address, seen) = node(Reply::new(503, "busy")).await;
    let caller = NodeCaller::new([&address], None).unwrap();
    let error = caller.change(&[], CHANGE, b"{}", Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error.attempt.kind, AttemptErrorKind::Status(503, "busy".into()));
    assert!(!error.may_still_happen && changes(&seen).len() > 1);
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
