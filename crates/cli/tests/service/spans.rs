//! Spans of requests, as a collector gets them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use esker_server::ask;
use rustix::process::Signal;
use serde_json::Value;

use crate::client::{Protocol, send};
use crate::lines::{ANY_PORT, NodeProcess, serve};
use crate::nodes::LONG;

/// A collector that takes what it gets, or accepts connections and never answers.
fn collector(answers: bool) -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (got, batches) = channel();
    std::thread::spawn(move || {
        let mut unanswered = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            match answers {
                true => drop(got.send(take(stream))),
                false => unanswered.push(stream),
            }
        }
    });
    (url, batches)
}

/// The path and the body of a request, which is answered.
fn take(mut stream: TcpStream) -> (String, Vec<u8>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut len) = (String::new(), 0);
    reader.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            None => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                len = value.parse().unwrap();
            }
            Some(_) => {}
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    (first.split(' ').nth(1).unwrap().to_owned(), body)
}

pub fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A node that works alone and sends spans to this collector, and where clients find it.
async fn traced(url: &str, dir: &tempfile::TempDir) -> (NodeProcess, String) {
    let mut command = serve(&ANY_PORT);
    command.current_dir(dir).env("OLTP_ENDPOINT", url).env("ENV", "laboratory");
    command.env("TRACING_SERVICE_NAME", "clockwork");
    let mut node = NodeProcess::start(&mut command);
    let address = node.answers();
    let ready = async {
        while !ask(&address, "/ready", None, LONG).await.is_ok_and(|answer| answer.status == 200) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, ready).await.unwrap();
    (node, address)
}

fn stops(mut node: NodeProcess) -> Vec<Value> {
    node.signal(Signal::TERM);
    let (status, errors) = node.end();
    assert_eq!(status, Some(0), "{errors}");
    std::mem::take(&mut node.seen)
}

/// With the trace of the client, the name of the service and its environment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_gets_the_span_of_a_request() {
    let (url, batches) = collector(true);
    let dir = tempfile::tempdir().unwrap();
    let (node, address) = traced(&url, &dir).await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let headers = [("traceparent", &*parent)];
    let answer = send(Protocol::Http1, &address, "GET", "/timestamp", &headers, b"").await;
    assert_eq!(answer.status, 200);
    // One that the client does not want to be sampled.
    let unsampled = "00-11111111111111111111111111111111-00f067aa0ba902b7-00";
    let headers = [("traceparent", unsampled)];
    send(Protocol::Http1, &address, "GET", "/up", &headers, b"").await;
    // What a client invents is not kept: spans wait for the collector.
    let member = |name| format!("{name}={}", "x".repeat(200));
    let (state, method) = (["a", "b", "c"].map(member).join(","), "BREW".repeat(20));
    let parent = "00-22222222222222222222222222222222-00f067aa0ba902b7-01";
    let headers = [("traceparent", parent), ("tracestate", &*state)];
    send(Protocol::Http1, &address, &method, "/clock", &headers, b"").await;
    stops(node);
    let (mut all, mut paths) = (Vec::new(), Vec::new());
    for (path, body) in batches.try_iter() {
        paths.push(path);
        all.extend(body);
    }
    assert!(!paths.is_empty() && paths.iter().all(|path| path == "/v1/traces"), "{paths:?}");
    let id = u128::from_str_radix(trace, 16).unwrap().to_be_bytes();
    assert!(contains(&all, &id), "the trace of the client");
    assert!(contains(&all, &[0x22; 16]), "the trace whose state is too long");
    assert!(!contains(&all, b"BREW") && !contains(&all, b"xxxx"), "what a client invents");
    for part in [
        "_OTHER /clock",
        "GET /timestamp",
        "GET /ready",
        "advance the epoch",
        "clockwork",
        "laboratory",
    ] {
        assert!(contains(&all, part.as_bytes()), "{part}");
    }
    assert!(!contains(&all, &[0x11; 16]) && !contains(&all, b"GET /up"), "not sampled");
}

/// A collector that never answers, and one that is not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_fails_keeps_no_node() {
    let silent = collector(false);
    let nowhere = format!("http://127.0.0.1:{}", esker_testkit::free_port());
    for url in [&silent.0, &nowhere] {
        let dir = tempfile::tempdir().unwrap();
        let (mut node, address) = traced(url, &dir).await;
        for _ in 0..100 {
            let answer = ask(&address, "/timestamp", None, LONG).await.unwrap();
            assert_eq!(answer.status, 200);
        }
        let warning = node.says("the collector does not take spans; they are lost");
        assert!(warning["collector"].as_str().unwrap().starts_with(&**url), "{warning}");
        assert!(spans_lost(&address).await >= 1);
        // Once, not with each batch.
        tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
        let seen = stops(node);
        let warnings = |line: &&Value| line["message"].as_str().unwrap().contains("collector");
        assert_eq!(seen.iter().filter(warnings).count(), 1, "{seen:?}");
    }
}

async fn spans_lost(address: &str) -> u64 {
    let metrics = ask(address, "/metrics", None, LONG).await.unwrap().text();
    let lost = metrics.lines().find_map(|line| line.strip_prefix("esker_spans_lost_total "));
    lost.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

/// How many spans were lost was not known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_that_are_lost_are_counted() {
    let address = format!("127.0.0.1:{}", esker_testkit::free_port());
    let dir = tempfile::tempdir().unwrap();
    let (mut node, client) = traced(&format!("http://{address}"), &dir).await;
    node.says("the collector does not take spans; they are lost");
    let before = spans_lost(&client).await;
    assert!(before >= 1);
    // It is there now.
    let listener = TcpListener::bind(&address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            take(stream);
        }
    });
    ask(&client, "/up", None, LONG).await.unwrap();
    let again = node.says("the collector takes spans again");
    assert_eq!(again["lost"].as_u64().unwrap(), spans_lost(&client).await, "{again}");
    stops(node);
}
