//! Nodes as processes, each at an address of its own.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use esker_server::{Members, ask};
use esker_testkit::own_address;
use rustix::process::{Pid, Signal, kill_process};

use crate::esker::command;

pub const LONG: Duration = Duration::from_secs(120);

/// The ports of a node at its own address: for clients and for the other nodes.
const PORTS: [u16; 2] = [8080, 9090];

pub struct Nodes {
    dir: tempfile::TempDir,
    hosts: Vec<Ipv4Addr>,
    processes: Vec<Option<Child>>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in 1..=self.hosts.len() {
            self.kill(node);
        }
    }
}

impl Nodes {
    pub async fn start_all(count: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let hosts = (0..count).map(|_| own_address()).collect();
        let mut nodes = Self { dir, hosts, processes: (0..count).map(|_| None).collect() };
        for node in 1..=count {
            nodes.start(node);
            nodes.ready(node).await;
        }
        nodes.agreed().await;
        nodes
    }

    pub fn data(&self, node: usize) -> PathBuf {
        self.dir.path().join(format!("node{node}"))
    }

    pub fn address(&self, node: usize) -> String {
        format!("{}:{}", self.hosts[node - 1], PORTS[0])
    }

    pub fn serve(&self, node: usize) -> Command {
        let mut serve = command(&["serve", "--pretty", "--node-id", &node.to_string()]);
        serve.arg("--data").arg(self.data(node));
        serve.args(["--listen", &self.address(node)]);
        serve.args(["--raft-listen", &format!("{}:{}", self.hosts[node - 1], PORTS[1])]);
        if node > 1 {
            serve.args(["--join", &self.address(1)]);
        }
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        serve
    }

    pub fn start(&mut self, node: usize) {
        let process = self.serve(node).spawn().unwrap();
        assert!(self.processes[node - 1].replace(process).is_none());
    }

    pub fn signal(&self, node: usize, signal: Signal) {
        let process = self.processes[node - 1].as_ref().unwrap();
        kill_process(Pid::from_child(process), signal).unwrap();
    }

    /// As `kill -9` does.
    pub fn kill(&mut self, node: usize) {
        if let Some(mut process) = self.processes[node - 1].take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Waits for its end, and returns its exit status.
    pub fn ended(&mut self, node: usize) -> Option<i32> {
        self.processes[node - 1].take().unwrap().wait().unwrap().code()
    }

    pub async fn ready(&self, node: usize) {
        let deadline = Instant::now() + LONG;
        loop {
            let answer = ask(&self.address(node), "/ready", None, LONG).await;
            if answer.as_ref().is_ok_and(|answer| answer.status == 200) {
                return;
            }
            assert!(Instant::now() < deadline, "node {node}: {answer:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn members(&self, node: usize) -> Option<Members> {
        let answer = ask(&self.address(node), "/members", None, Duration::from_secs(1)).await;
        serde_json::from_slice(&answer.ok()?.body).ok()
    }

    /// Waits until all nodes vote and follow one leader, and returns it.
    pub async fn agreed(&self) -> usize {
        let deadline = Instant::now() + LONG;
        loop {
            let mut leaders = Vec::new();
            for node in 1..=self.hosts.len() {
                let members = self.members(node).await;
                let all = members.filter(|all| {
                    let voters = all.members.iter().filter(|one| one.voter).count();
                    voters == self.hosts.len() && !all.changing
                });
                leaders.push(all.and_then(|all| all.leader).map(|leader| leader.node));
            }
            leaders.dedup();
            if let [Some(leader)] = leaders[..] {
                return leader as usize;
            }
            assert!(Instant::now() < deadline, "{leaders:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
