//! A node whose log lines are read.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::client::{Protocol, get};
use crate::esker::{command, spawn};
use crate::nodes::LONG;

/// The variables of `esker serve`.
const VARIABLES: &[&str] = &[
    "ESKER_DATA",
    "ESKER_LISTEN",
    "ESKER_ADVERTISE",
    "ESKER_RAFT_ADVERTISE",
    "ESKER_JOIN",
    "ESKER_CLUSTER",
    "ESKER_CONFIG",
    "ESKER_MAX_CLOCK_STEP",
    "ESKER_CONNECTIONS",
    "HTTP_PORT",
    "RAFT_ADDR",
    "ESKER_PEER_CA",
    "ESKER_PEER_CERT",
    "ESKER_PEER_KEY",
    "ESKER_PLAIN_PEERS",
    "NODE_ID",
    "TIMESTAMP_REQUEST_BUFFER",
    "MAX_TIMESTAMPS",
    "EPOCH_INTERVAL_MS",
    "EPOCH_DEADLINE_LIMIT",
    "RTT_MS",
    "DEBUG",
    "TRACE",
    "PRETTY",
    "LOG_TIME_MS",
    "LOG_LEVEL_KEY",
    "ESKER_PROFILE_LISTEN",
    "OLTP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "TRACING_SERVICE_NAME",
    "ENV",
    "RUST_LOG",
];

/// `esker serve` without settings of the environment.
pub fn serve(words: &[&str]) -> Command {
    let mut serve = command(&["serve"]);
    for name in VARIABLES {
        serve.env_remove(name);
    }
    serve.args(words);
    serve
}

/// Ports that the system chooses.
pub const ANY_PORT: [&str; 4] = ["--listen", "127.0.0.1:0", "--raft-listen", "127.0.0.1:0"];

/// Waits until the node at this address gives timestamps.
pub async fn until_timestamps(address: &str) {
    let deadline = Instant::now() + LONG;
    while get(Protocol::Http1, address, "/timestamp").await.status != 200 {
        assert!(Instant::now() < deadline, "{address} gives none");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A node that logs JSON.
pub struct NodeProcess {
    pub process: Child,
    lines: Receiver<String>,
    /// All that were read.
    pub seen: Vec<Value>,
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl NodeProcess {
    pub fn start(command: &mut Command) -> Self {
        let mut process = spawn(command, Stdio::null());
        let out = BufReader::new(process.stdout.take().unwrap());
        let (read, lines) = channel();
        // A pipe that is not read would stop the node.
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).all(|line| read.send(line).is_ok());
        });
        Self { process, lines, seen: Vec::new() }
    }

    /// The next line for which this holds.
    pub fn next(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.recv_timeout(LONG);
            let line = line.unwrap_or_else(|why| {
                self.process.kill().unwrap();
                panic!("{why}: {:?}: {:#?}", self.end(), self.seen)
            });
            let line: Value = serde_json::from_str(&line).unwrap();
            self.seen.push(line.clone());
            if holds(&line) {
                return line;
            }
        }
    }

    /// The first line with this message, also of those that were read.
    pub fn said(&mut self, message: &str) -> Value {
        let seen = self.seen.iter().find(|line| line["message"] == message).cloned();
        seen.unwrap_or_else(|| self.says(message))
    }

    pub fn says(&mut self, message: &str) -> Value {
        self.next(|line| line["message"] == message)
    }

    /// Where clients connect.
    pub fn answers(&mut self) -> String {
        self.says("the node answers")["clients"].as_str().unwrap().to_owned()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Waits for its end: the exit status, and what is on standard error.
    pub fn end(&mut self) -> (Option<i32>, String) {
        self.seen.extend(self.lines.iter().map(|line| serde_json::from_str(&line).unwrap()));
        let mut errors = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.process.wait().unwrap().code(), errors)
    }

    /// Ends it with SIGTERM, as it should end.
    pub fn stop(mut self) -> Vec<Value> {
        self.signal(Signal::TERM);
        assert_eq!(self.end(), (Some(0), String::new()));
        std::mem::take(&mut self.seen)
    }
}
