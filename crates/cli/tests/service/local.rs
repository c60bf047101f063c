//! `esker cluster local`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Lines, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::client::{Protocol, get};
use crate::esker::{command, run, spawn};
use crate::nodes::LONG;

/// A port with the others that three nodes use, all free, and none of them one that the system
/// gives to a connection.
fn free_ports() -> u16 {
    // Tests run at a time, and none has bound its ports yet.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let from = (std::process::id() % 300) as u16 + 60 * NEXT.fetch_add(1, SeqCst);
    let is_free = |port: &u16| {
        let ports = [0, 1, 10, 11, 20, 21].map(|above| port + above);
        ports.iter().all(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
    };
    (from..from + 300).map(|at| 20_000 + at % 300 * 40).find(is_free).unwrap()
}

/// A cluster, which ends with this.
struct Local(Child);

impl Drop for Local {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // It may have ended by itself.
            let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        }
        drop(self.0.wait());
    }
}

/// The processes that this one started, by the number of their node.
fn nodes_of(local: &Child) -> Vec<i32> {
    let pid = local.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn start(dir: &Path, port: u16) -> (Local, Lines<BufReader<ChildStdout>>) {
    let mut local = command(&["cluster", "local", "three", "--port", &port.to_string()]);
    let mut local = Local(spawn(local.current_dir(dir), Stdio::null()));
    let mut lines = BufReader::new(local.0.stdout.take().unwrap()).lines();
    until(&mut local, &mut lines, "node 3");
    (local, lines)
}

/// Reads until a line begins so.
fn until(local: &mut Local, lines: &mut Lines<BufReader<ChildStdout>>, begin: &str) {
    if lines.all(|line| !line.unwrap().starts_with(begin)) {
        let mut errors = String::new();
        local.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        panic!("there is no line {begin:?}: {errors}");
    }
}

/// A node that ends is reported, and the others go on; the data is for the same ports; and no node
/// outlives the command that started it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_end_with_their_command_and_not_with_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_ports();
    let endpoint = format!("http://127.0.0.1:{port}");
    let (mut local, _lines) = start(dir.path(), port);
    let third = Pid::from_raw(nodes_of(&local.0)[2]).unwrap();
    kill_process(third, Signal::KILL).unwrap();
    let mut errors = BufReader::new(local.0.stderr.take().unwrap()).lines();
    let reported = errors.next().unwrap().unwrap();
    assert!(reported.contains("node 3 ended"), "{reported}");
    run(command(&["ts", "--endpoint", &endpoint]), b"").ok();
    kill_process(Pid::from_child(&local.0), Signal::TERM).unwrap();
    assert_eq!(local.0.wait().unwrap().code(), Some(1));
    assert!(errors.next().is_none());

    let other = free_ports();
    let mut moved = command(&["cluster", "local", "three", "--port", &other.to_string()]);
    moved.current_dir(&dir);
    let old = format!("127.0.0.1:{}", port + 10);
    run(moved, b"").exits(2).says(&["--port", &old]);

    let (mut local, _lines) = start(dir.path(), port);
    local.0.kill().unwrap();
    let deadline = Instant::now() + LONG;
    while (0..3).any(|node| TcpListener::bind(("127.0.0.1", port + 10 * node)).is_err()) {
        assert!(Instant::now() < deadline, "a node outlives its command");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Its data is gone, and with it its votes: the others go on, and say what is to be done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_data_does_not_end_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_ports();
    let (mut local, _lines) = start(dir.path(), port);
    kill_process(Pid::from_child(&local.0), Signal::TERM).unwrap();
    assert_eq!(local.0.wait().unwrap().code(), Some(0));
    std::fs::remove_dir_all(dir.path().join("three/node2")).unwrap();
    let (mut local, _lines) = start(dir.path(), port);
    let mut errors = BufReader::new(local.0.stderr.take().unwrap()).lines();
    let reported = errors.next().unwrap().unwrap();
    assert!(reported.contains("node 2 ended") && reported.contains("new number"), "{reported}");
    let endpoint = format!("http://127.0.0.1:{port}");
    run(command(&["ts", "--endpoint", &endpoint]), b"").ok();
    // What is there is not taken for these nodes.
    let mut other = command(&["cluster", "local", "other", "--port", &port.to_string()]);
    other.current_dir(&dir);
    let ended = run(other, b"").exits(1);
    assert!(ended.out.is_empty(), "{ended:?}");
    ended.says(&["--port", &format!("127.0.0.1:{port}")]);
}

/// One command: three members, which are the same after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_command_runs_three_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_ports();
    let endpoint = format!("http://127.0.0.1:{port}");
    let (mut cluster, mut last) = (Value::Null, String::new());
    for round in 0..2 {
        let mut local = command(&["cluster", "local", "three", "--port", &port.to_string()]);
        let mut local = Local(spawn(local.current_dir(&dir), Stdio::null()));
        let mut lines = BufReader::new(local.0.stdout.take().unwrap()).lines();
        for node in 1..=3 {
            let expected = format!("node {node}: http://127.0.0.1:{}", port + 10 * (node - 1));
            until(&mut local, &mut lines, &expected);
        }
        for node in 0..3 {
            let address = format!("127.0.0.1:{}", port + 10 * node);
            let members = get(Protocol::Http1, &address, "/members").await;
            let members: Value = serde_json::from_slice(&members.body).unwrap();
            let all = members["members"].as_array().unwrap();
            let id = &members["cluster"];
            assert!(cluster.is_null() || cluster == *id, "{members}");
            cluster = id.clone();
            assert!(all.len() == 3 && all.iter().all(|node| node["voter"] == true), "{members}");
        }
        let taken = run(command(&["ts", "--endpoint", &endpoint, "--json"]), b"").ok().json();
        let taken = taken["timestamp"].as_str().unwrap().to_owned();
        assert!(taken > last);
        last = taken;
        let signal = if round == 0 { Signal::INT } else { Signal::TERM };
        kill_process(Pid::from_child(&local.0), signal).unwrap();
        lines.for_each(drop);
        assert_eq!(local.0.wait().unwrap().code(), Some(0));
        // No node stays.
        let deadline = Instant::now() + LONG;
        for node in 0..3 {
            while TcpListener::bind(("127.0.0.1", port + 10 * node)).is_err() {
                assert!(Instant::now() < deadline, "node {} runs", node + 1);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Bug: the reason was lost where the command line of the nodes was wrong.
#[test]
fn a_node_that_cannot_start_is_reported_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let mut local = command(&["cluster", "local", "three", "--port", &free_ports().to_string()]);
    local.current_dir(&dir).env("ESKER_MAX_CLOCK_STEP", "bad");
    run(local, b"").exits(1).says(&["node 1 ended", "'bad'", "ESKER_MAX_CLOCK_STEP", "node1.log"]);
}

/// Variables of one node, or of all programs of a machine, do not reach the nodes of this command.
#[test]
fn nodes_do_not_inherit_the_collector_and_the_port_of_profiles() {
    let dir = tempfile::tempdir().unwrap();
    let mut local = command(&["cluster", "local", "three", "--port", &free_ports().to_string()]);
    local.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9").env("OLTP_ENDPOINT", "bad");
    local.env("ESKER_PROFILE_LISTEN", "bad");
    let mut local = Local(spawn(local.current_dir(&dir), Stdio::null()));
    let mut lines = BufReader::new(local.0.stdout.take().unwrap()).lines();
    until(&mut local, &mut lines, "node 3");
    assert!(nodes_of(&local.0).len() == 3);
}
