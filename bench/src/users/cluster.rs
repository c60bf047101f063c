//! Three nodes of `esker cluster local`, as a process of its own.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::users::connection::{Connection, Protocol};

const NODE_COUNT: u16 = 3;
/// How long the nodes may take until all vote and follow one leader.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long they may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The number of connections that a node accepts.
const CONNECTIONS: &str = "ESKER_CONNECTIONS";
/// Connections that are not those of users.
const OTHER_CONNECTIONS: u32 = 64;

/// Three nodes. They end with this.
pub struct Cluster {
    process: Child,
    port: u16,
}

impl Cluster {
    /// Starts them in `dir`, with connections for so many users, and the settings that the
    /// environment has.
    pub fn start(esker: &Path, dir: &Path, users: u32) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(esker);
        command.args(["cluster", "local"]).arg(dir).args(["--port", &port.to_string()]);
        if std::env::var_os(CONNECTIONS).is_none() {
            command.env(CONNECTIONS, (users + OTHER_CONNECTIONS).to_string());
        }
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let process = process.with_context(|| format!("start {}", esker.display()))?;
        Ok(Self { process, port })
    }

    /// Waits until all three vote and follow one leader, and returns their addresses, the leader's
    /// first.
    pub async fn ready(&mut self) -> Result<Vec<String>> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            self.check()?;
            if let Some(leader) = self.leader().await {
                let mut nodes = self.addresses();
                nodes.sort_by_key(|node| *node != leader);
                return Ok(nodes);
            }
            if Instant::now() >= deadline {
                bail!("the nodes did not agree on a leader within {} s", START_TIMEOUT.as_secs());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Fails if a node has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            Some(status) => bail!("`esker cluster local` ended: {status}"),
            None => Ok(()),
        }
    }

    /// The term that the first node knows: each election raises it.
    pub async fn term(&self) -> Option<u64> {
        get(self.addresses().first()?, "/status").await?["term"].as_u64()
    }

    fn addresses(&self) -> Vec<String> {
        (0..NODE_COUNT).map(|node| format!("127.0.0.1:{}", self.port + 10 * node)).collect()
    }

    /// The leader, if all know the same one and three that vote.
    async fn leader(&self) -> Option<String> {
        let mut leaders = Vec::new();
        for node in self.addresses() {
            let all = get(&node, "/members").await?;
            let voters = all["members"].as_array()?.iter().filter(|one| one["voter"] == true);
            if voters.count() != usize::from(NODE_COUNT) {
                return None;
            }
            leaders.push(all["leader"]["addr"].as_str()?.to_owned());
        }
        leaders.dedup();
        leaders.pop().filter(|_| leaders.is_empty())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while matches!(self.process.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                eprintln!("the nodes did not end in time; process {}", self.process.id());
                let _ = self.process.kill();
                let _ = self.process.wait();
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

async fn get(node: &str, path: &str) -> Option<Value> {
    let mut connection = Connection::open(Protocol::H1, node).await.ok()?;
    let answer = connection.get(path).await.ok().filter(|answer| answer.status == 200)?;
    serde_json::from_slice(&answer.body).ok()
}

/// A port with which `esker cluster local` finds all of its ports free.
fn free_port() -> Result<u16> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    (18_000..19_000)
        .step_by(100)
        .find(|port| (0..NODE_COUNT).all(|node| (0..2).all(|of| is_free(port + 10 * node + of))))
        .context("no free ports between 18000 and 19000")
}
