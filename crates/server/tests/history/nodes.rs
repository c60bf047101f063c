//! Three nodes as processes, behind a network that can be cut.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use esker_server::{Members, ask, make_certificates};
use esker_testkit::number_from_env;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::child::{Command, NODE_SETTINGS_ENV, Settings};
use crate::network::{Addresses, Network};

pub const NODES: u64 = 3;
pub const TEST_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time that a node has for a change before another one is asked: it may be stopped.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// The token of changes of the cluster.
const TOKEN: &str = "a-token-of-16-bytes-or-more";

pub struct Nodes {
    dir: tempfile::TempDir,
    network: Network,
    settings: Vec<Settings>,
    processes: Vec<Option<Child>>,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in 1..=NODES {
            self.kill(node);
        }
        if std::thread::panicking() {
            for node in 1..=NODES {
                let said = std::fs::read_to_string(self.dir.path().join(format!("{node}.log")));
                eprintln!("node {node} said: {}", said.unwrap_or_default());
            }
        }
    }
}

/// Asks the node at this address for a change of the cluster; returns whether it made it.
async fn change(address: &str, path: &str, body: &str) -> bool {
    let Ok(mut stream) = tokio::net::TcpStream::connect(address).await else { return false };
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut answer = Vec::new();
    stream.write_all(request.as_bytes()).await.is_ok()
        && stream.read_to_end(&mut answer).await.is_ok()
        && answer.starts_with(b"HTTP/1.1 200 ")
}

/// Whether nodes and clients use TLS.
pub fn uses_tls() -> bool {
    number_from_env("ESKER_SOAK_TLS", 0) > 0
}

/// Makes the certificates of all nodes, and returns their folders. Clients know a node as
/// `localhost`.
fn make_all_certificates(dir: &Path) -> Vec<PathBuf> {
    let hosts = (1..=NODES).map(|node| (node, vec!["127.0.0.1".to_owned()])).collect();
    make_certificates(dir, &hosts).unwrap()
}

fn at(node: u64) -> usize {
    usize::try_from(node).unwrap() - 1
}

impl Nodes {
    pub async fn start_all(network: Network, lease_reads: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tokens = dir.path().join("tokens");
        std::fs::write(&tokens, TOKEN).unwrap();
        std::fs::set_permissions(&tokens, Permissions::from_mode(0o600)).unwrap();
        let certificates = uses_tls().then(|| make_all_certificates(&dir.path().join("certs")));
        let mut settings: Vec<Settings> = Vec::new();
        for node in 1..=NODES {
            let Addresses { listen, raft_listen, raft_advertise } = network.addresses(node).await;
            let certificates = certificates.as_ref().map(|folders| folders[at(node)].clone());
            settings.push(Settings {
                node,
                data: dir.path().join(format!("node{node}")),
                listen,
                raft_listen,
                raft_advertise,
                join: settings.first().map(|first| first.listen),
                lease_reads,
                tokens: tokens.clone(),
                certificates,
            });
        }
        let processes = (1..=NODES).map(|_| None).collect();
        let mut nodes = Self { dir, network, settings, processes };
        for node in 1..=NODES {
            nodes.start(node);
            nodes.ready(node).await;
        }
        nodes.leader().await;
        nodes
    }

    pub fn address(&self, node: u64) -> String {
        self.settings[at(node)].listen.to_string()
    }

    pub fn addresses(&self) -> Vec<String> {
        (1..=NODES).map(|node| self.address(node)).collect()
    }

    /// The authority of the nodes, if clients use TLS.
    pub fn authority(&self) -> Option<PathBuf> {
        self.settings[0].certificates.as_ref().map(|folder| folder.join("ca.pem"))
    }

    /// Waits until leaders answer under their lease.
    pub async fn leases_are_on(&self) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let answer = ask(&self.address(1), "/status", None, TEST_TIMEOUT).await.unwrap();
            let status: esker_server::NodeStatus = serde_json::from_slice(&answer.body).unwrap();
            if status.lease_reads {
                return;
            }
            assert!(Instant::now() < deadline, "leases stay off");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub fn start(&mut self, node: u64) {
        let said = self.dir.path().join(format!("{node}.log"));
        let said = File::options().create(true).append(true).open(said).unwrap();
        let process = self
            .network
            .program(node)
            .args(["--exact", "child::node", "--nocapture", "--quiet"])
            .env(NODE_SETTINGS_ENV, serde_json::to_string(&self.settings[at(node)]).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .unwrap();
        assert!(self.processes[at(node)].replace(process).is_none());
    }

    pub fn tell(&mut self, node: u64, command: Command) {
        let process = self.processes[at(node)].as_mut().unwrap();
        let mut line = serde_json::to_vec(&command).unwrap();
        line.push(b'\n');
        // A node that has failed hears nothing.
        drop(process.stdin.as_mut().unwrap().write_all(&line));
    }

    pub fn signal(&self, node: u64, signal: Signal) {
        let process = self.processes[at(node)].as_ref().unwrap();
        kill_process(Pid::from_child(process), signal).unwrap();
    }

    /// As `kill -9` does.
    pub fn kill(&mut self, node: u64) {
        if let Some(mut process) = self.processes[at(node)].take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Waits for its end, and returns its exit status.
    pub async fn ended(&mut self, node: u64) -> Option<i32> {
        let mut process = self.processes[at(node)].take().unwrap();
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(status) = process.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "node {node} did not end");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// From now on nothing passes between this node and the others, but clients reach all.
    pub fn cut_off(&self, node: Option<u64>) {
        self.network.cut_off(node);
    }

    pub async fn transfer(&self, to: u64) {
        let cluster = self.members(to).await.unwrap().cluster;
        let body = format!(r#"{{"cluster":"{cluster}","nodeID":{to}}}"#);
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            // Also one of unknown outcome: the node that leads is not asked for more.
            for address in self.addresses() {
                let asked = change(&address, "/cluster/transfer", &body);
                if tokio::time::timeout(CHANGE_TIMEOUT, asked).await.is_ok_and(|is_done| is_done) {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "no transfer to {to}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub async fn ready(&self, node: u64) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let answer = ask(&self.address(node), "/ready", None, TEST_TIMEOUT).await;
            if answer.as_ref().is_ok_and(|answer| answer.status == 200) {
                return;
            }
            assert!(Instant::now() < deadline, "node {node}: {answer:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub async fn members(&self, node: u64) -> Option<Members> {
        let answer = ask(&self.address(node), "/members", None, Duration::from_secs(1)).await;
        serde_json::from_slice(&answer.ok()?.body).ok()
    }

    /// Waits until all nodes vote and follow one leader, and returns it.
    pub async fn leader(&self) -> u64 {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let mut leaders = Vec::new();
            for node in 1..=NODES {
                let members = self.members(node).await;
                let all =
                    members.filter(|all| all.members.iter().filter(|one| one.voter).count() == 3);
                leaders.push(all.and_then(|all| all.leader).map(|leader| leader.node));
            }
            leaders.dedup();
            if let [Some(leader)] = leaders[..] {
                return leader;
            }
            assert!(Instant::now() < deadline, "{leaders:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until this node knows another leader than this one, and returns it.
    pub async fn leader_after(&self, node: u64, former: u64) -> u64 {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let leader = self.members(node).await.and_then(|members| members.leader);
            match leader.map(|leader| leader.node) {
                Some(leader) if leader != former => return leader,
                leader => assert!(Instant::now() < deadline, "{leader:?} of {node}"),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
