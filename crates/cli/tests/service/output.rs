//! The log lines of a node.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::client::{Protocol, get, post, send};
use crate::esker::{program, read_lines, run, spawn};
use crate::lines::{ANY_PORT, NodeProcess, serve, until_timestamps};
use crate::nodes::LONG;

/// A line for each request and each batch, and the id of a request in all of its lines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_logged_at_debug_level() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(serve(&ANY_PORT).current_dir(&dir).env("DEBUG", "1"));
    let address = node.answers();
    until_timestamps(&address).await;
    let members: Value =
        serde_json::from_slice(&get(Protocol::Http1, &address, "/members").await.body).unwrap();
    let body = json!({"cluster": members["cluster"], "nodeID": 1}).to_string();
    let requests = [
        (Protocol::Http1, "GET", "/timestamp?n=2", "", 200, 32),
        (Protocol::Http2, "GET", "/timestamp?n=0", "", 400, 63),
        (Protocol::Http2, "PUT", "/timestamp", "four", 405, 18),
        (Protocol::Http1, "GET", "/nothing", "", 404, 9),
        (Protocol::Http2, "POST", "/cluster/transfer", &body, 200, 12),
    ];
    for (protocol, method, path, body, status, bytes_out) in requests {
        let headers = [("content-type", "application/json")];
        let sent = send(protocol, &address, method, path, &headers, body.as_bytes());
        let seen = sent.await;
        assert_eq!(seen.status, status, "{path}");
        let id: u64 = seen.header("x-request-id").unwrap().parse().unwrap();
        let line = node.next(|line| line["message"] == "answered a request" && line["id"] == id);
        let path = path.split('?').next().unwrap();
        let version = if protocol == Protocol::Http1 { "HTTP/1.1" } else { "HTTP/2.0" };
        assert_eq!((&line["method"], &line["path"]), (&json!(method), &json!(path)));
        assert_eq!((&line["status"], &line["protocol"]), (&json!(status), &json!(version)));
        assert_eq!(
            (&line["bytes_in"], &line["bytes_out"]),
            (&json!(body.len()), &json!(bytes_out))
        );
        assert!(line["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert!(line["latency_ns"].as_u64().unwrap() > 0 && line["level"] == "debug", "{line}");
        let of_batch = node.seen.iter().rev().find(|line| line["message"] == "answered a batch");
        let batch = of_batch.unwrap();
        assert!(batch["requests"] == 1 && batch["latency_ns"].as_u64().unwrap() > 0, "{batch}");
        if path == "/timestamp" && status == 200 {
            assert_eq!(batch["timestamps"], 2);
        }
        if path == "/cluster/transfer" {
            // The node leads, and still does.
            let is_given = |line: &Value| line["message"] == "gave leadership away";
            assert!(!node.seen.iter().any(is_given));
        }
    }
    node.stop();
}

/// Nodes on other hosts became voters, and never reached the Raft address of node 1.
#[test]
fn a_node_that_other_hosts_ask_warns_of_a_raft_address_on_loopback() {
    let dir = tempfile::tempdir().unwrap();
    let mut serve = serve(&ANY_PORT);
    serve.current_dir(&dir).args(["--advertise", "10.77.0.1:8080"]);
    let mut node = NodeProcess::start(&mut serve);
    node.answers();
    let warns = |line: &&Value| line["level"] == "warn" && line["raft"].is_string();
    let line = node.seen.iter().find(warns).unwrap();
    assert!(line["message"].as_str().unwrap().contains("--raft-listen (RAFT_ADDR)"), "{line}");
    node.stop();
}

/// Who leads, and what changes the cluster: after it was done, or why it was not, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_and_changes_of_the_cluster_are_logged() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| {
        let mut serve = serve(&ANY_PORT);
        serve.arg("--data").arg(dir.path().join(name));
        // A node that gets no processor for a while keeps its leadership.
        serve.args(["--rtt-ms", "100"]);
        serve
    };
    let mut first = NodeProcess::start(&mut at("one"));
    let address = first.answers();
    // A node may win before it answers, and then that line comes first.
    assert_eq!(first.said("leadership won")["node"], 1);
    let mut second = NodeProcess::start(at("two").args(["--node-id", "2", "--join", &address]));
    let other = second.answers();
    let added = first.says("added a node");
    assert_eq!((&added["node"], &added["addr"]), (&json!(2), &json!(other)));
    let members = get(Protocol::Http1, &address, "/members").await.body;
    let members: Value = serde_json::from_slice(&members).unwrap();
    let body = |node: u64| json!({"cluster": members["cluster"], "nodeID": node}).to_string();
    for _ in 0..3 {
        assert_eq!(post(&address, "/cluster/remove", &body(9)).await.status, 422);
    }
    let refused = first.says("a change of the cluster was refused");
    assert_eq!((&refused["node"], &refused["change"]), (&json!(9), &json!("remove a node")));
    let raft = members["members"].as_array().unwrap().iter().find(|one| one["nodeID"] == 2);
    let raft = &raft.unwrap()["raftAddr"];
    // There, and back.
    for addr in [other.replace("127.0.0.1", "localhost"), other.clone()] {
        let cluster = &members["cluster"];
        let moved = json!({"cluster": cluster, "nodeID": 2, "addr": addr, "raftAddr": raft});
        assert_eq!(post(&address, "/cluster/add", &moved.to_string()).await.status, 200);
        assert_eq!(first.says("changed the address of a node")["addr"], addr);
    }
    // Until the second one votes.
    let deadline = Instant::now() + LONG;
    let transferred = loop {
        let seen = post(&address, "/cluster/transfer", &body(2)).await;
        if seen.status == 200 {
            break seen;
        }
        assert!(Instant::now() < deadline, "{}", seen.text());
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let lost = first.says("leadership lost");
    assert_eq!((&lost["node"], &lost["level"]), (&json!(1), &json!("warn")));
    assert_eq!(second.says("leadership won")["node"], 2);
    let removed = post(&other, "/cluster/remove", &body(1)).await;
    assert_eq!(removed.status, 200, "{}", removed.text());
    assert_eq!(second.says("removed a node")["node"], 1);
    assert_eq!(first.says("removed from the cluster; stop this node")["node"], 1);
    let lines = first.stop();
    let refusals = lines.iter().filter(|line| line["node"] == 9 && line["level"] == "warn").count();
    assert_eq!(refusals, 1, "{lines:#?}");
    let id: u64 = transferred.header("x-request-id").unwrap().parse().unwrap();
    let given = lines.iter().find(|line| line["message"] == "gave leadership away").unwrap();
    assert_eq!((&given["id"], &given["node"]), (&json!(id), &json!(2)));
    second.stop();
}

/// A node serves, and ends, while no process reads its lines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_pipe_stops_no_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut serve = serve(&ANY_PORT);
    let mut node = spawn(serve.current_dir(&dir).env("DEBUG", "1"), Stdio::null());
    let mut out = node.stdout.take().unwrap();
    let mut byte = [0];
    let mut line = Vec::new();
    let address = loop {
        assert_eq!(out.read(&mut byte).unwrap(), 1);
        if byte[0] != b'\n' {
            line.push(byte[0]);
            continue;
        }
        let parsed: Value = serde_json::from_slice(&line).unwrap();
        line.clear();
        if parsed["message"] == "the node answers" {
            break parsed["clients"].as_str().unwrap().to_owned();
        }
    };
    // Far more than a pipe holds.
    for _ in 0..1000 {
        assert_eq!(get(Protocol::Http1, &address, "/up").await.status, 200);
    }
    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    assert_eq!(node.wait().unwrap().code(), Some(0));
    drop(out);
}

/// JSON on standard output, or lines for people on standard error; no line of a request unless it
/// is asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_lines_have_the_form_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    for level in ["", "DEBUG", "TRACE"] {
        let mut serve = serve(&ANY_PORT);
        let mut node = NodeProcess::start(match level {
            "" => serve.current_dir(&dir),
            level => serve.current_dir(&dir).env(level, "1"),
        });
        let address = node.answers();
        get(Protocol::Http2, &address, "/up").await;
        post(&address, "/cluster/transfer", "{}").await;
        let lines = node.stop();
        for line in &lines {
            let time = line["time"].as_str().unwrap();
            assert!(time.len() == 30 && time.ends_with('Z'), "{line}");
            assert!(line["level"].is_string() && line["target"].is_string(), "{line}");
        }
        let has = |level: &str| lines.iter().any(|line| line["level"] == level);
        assert!(has("info"));
        assert_eq!((has("debug"), has("trace")), (!level.is_empty(), level == "TRACE"));
    }
    for (variables, of_time) in [(&["PRETTY"][..], 'Z'), (&["PRETTY", "LOG_TIME_MS"], '0')] {
        let mut serve = serve(&ANY_PORT);
        serve.current_dir(&dir).envs(variables.iter().map(|name| (name, "1")));
        let mut node = spawn(&mut serve, Stdio::null());
        let mut errors = node.stderr.take().unwrap();
        let mut read = read_lines(&mut errors, 2);
        kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
        errors.read_to_string(&mut read).unwrap();
        node.stderr = None;
        let out = node.wait_with_output().unwrap();
        assert_eq!((out.status.code(), out.stdout.len()), (Some(0), 0));
        assert!(read.contains(" info  the node answers "), "{read}");
        for line in read.lines() {
            let time = line.split(' ').next().unwrap();
            let in_ms = time.len() == 13 && time.bytes().all(|byte| byte.is_ascii_digit());
            assert_eq!((time.ends_with('Z'), in_ms), (of_time == 'Z', of_time != 'Z'), "{line}");
        }
    }
}

/// Resident memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Under load, a node logs nothing for a timestamp, and its memory does not grow.
#[test]
fn timestamps_take_neither_output_nor_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::start(serve(&ANY_PORT).current_dir(&dir));
    let endpoint = format!("http://{}", node.answers());
    let load = |seconds: &str| {
        let words = ["ts", "--json", "--protocol", "h2c", "--connections", "4"];
        let mut bench = program("esker-bench", &words);
        bench.args(["--streams", "32", "--n", "16", "--seconds", seconds, "--endpoint", &endpoint]);
        let figure = run(bench, b"").ok().json();
        assert_eq!(figure["verified"], true, "{figure}");
        figure["ops"].as_u64().unwrap()
    };
    load("0.5");
    let before = resident(node.process.id());
    let requests = load("2");
    let grown = resident(node.process.id()).saturating_sub(before);
    assert!(requests > 2000, "{requests} requests");
    assert!(grown < 16 << 10, "{grown} KiB more after {requests} requests");
    let lines = node.stop();
    assert!(lines.len() < 10, "{lines:#?}");
}
