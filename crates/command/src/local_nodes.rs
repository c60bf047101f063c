//! Nodes of a cluster on this machine, each a process of its own.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use esker_server::{MemberInfo, Members, ask};
use rustix::process::{Pid, Signal, kill_process};

use crate::exit::{Failure, Outcome};

/// Variables of the environment that are for one node.
const OF_ONE_NODE: [&str; 10] = [
    "ESKER_ADVERTISE",
    "ESKER_CLUSTER",
    "ESKER_CONFIG",
    "ESKER_DATA",
    "ESKER_JOIN",
    "ESKER_LISTEN",
    "ESKER_RAFT_ADVERTISE",
    "HTTP_PORT",
    "NODE_ID",
    "RAFT_ADDR",
];
/// How long a node may take until it votes.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long nodes may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const STATUS_CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Nodes 1 and above, on loopback: clients on a port and every tenth above it, and Raft one above
/// each. They end with this.
#[derive(Debug)]
pub struct LocalNodes {
    program: PathBuf,
    dir: PathBuf,
    port: u16,
    nodes: Vec<Option<Child>>,
}

impl Drop for LocalNodes {
    fn drop(&mut self) {
        for number in 1..=self.count() {
            self.kill(number);
        }
    }
}

impl LocalNodes {
    /// Starts `count` nodes of `program`, which is `esker`: one after the other, so that the first
    /// has the others join. Those that have data come first: a new one needs their answer.
    ///
    /// `failed` gets what another node than the first fails with, and says whether the others go
    /// on.
    pub async fn start(
        program: PathBuf,
        dir: &Path,
        port: u16,
        count: u16,
        mut failed: impl FnMut(Failure) -> Outcome,
    ) -> Outcome<Self> {
        fs::create_dir_all(dir).map_err(|error| Failure::from_io(dir.display(), &error))?;
        let mut nodes = Self { program, dir: dir.to_path_buf(), port, nodes: Vec::new() };
        nodes.nodes.resize_with(usize::from(count), || None);
        nodes.refuse_taken_ports()?;
        let mut order: Vec<_> = (1..=count).collect();
        order.sort_by_key(|number| (*number > 1 && !nodes.data(*number).exists(), *number));
        for number in order {
            nodes.run(number)?;
            match nodes.wait_until_member(number).await {
                Ok(()) if number == 1 => nodes.refuse_other_ports().await?,
                Ok(()) => {}
                Err(failure) if number == 1 => return Err(failure),
                Err(failure) => failed(failure)?,
            }
        }
        Ok(nodes)
    }

    /// Refuses ports in use: a server that answers there would be taken for one of these nodes.
    fn refuse_taken_ports(&self) -> Outcome {
        let addresses =
            (1..=self.count()).flat_map(|number| [self.at(number, 0), self.at(number, 1)]);
        for address in addresses {
            if let Err(error) = TcpListener::bind(&address) {
                return Err(Failure::failed(format!(
                    "cannot listen on {address} (--port): {error}"
                )));
            }
        }
        Ok(())
    }

    fn data(&self, number: u16) -> PathBuf {
        self.dir.join(format!("node{number}"))
    }

    /// How many there are.
    pub fn count(&self) -> u16 {
        u16::try_from(self.nodes.len()).unwrap_or(u16::MAX)
    }

    /// The address for clients of a node.
    pub fn address(&self, number: u16) -> String {
        self.at(number, 0)
    }

    fn at(&self, number: u16, above: u16) -> String {
        format!("127.0.0.1:{}", self.port + 10 * (number - 1) + above)
    }

    fn log(&self, number: u16) -> PathBuf {
        self.dir.join(format!("node{number}.log"))
    }

    /// Starts a node that does not run.
    pub fn run(&mut self, number: u16) -> Outcome {
        let path = self.log(number);
        let of_file = |error| Failure::from_io(path.display(), &error);
        let out = File::options().create(true).append(true).open(&path).map_err(of_file)?;
        let errors = out.try_clone().map_err(of_file)?;
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--data").arg(self.data(number));
        command.args(["--node-id", &number.to_string()]);
        command.args(["--listen", &self.at(number, 0), "--raft-listen", &self.at(number, 1)]);
        if number > 1 {
            command.args(["--join", &self.at(1, 0)]);
        }
        // These are for one node.
        for name in OF_ONE_NODE {
            command.env_remove(name);
        }
        // Also when this process is killed.
        command.args(["--parent", &std::process::id().to_string()]);
        command.stdin(Stdio::null()).stdout(out).stderr(errors);
        let node = command.spawn().map_err(|error| Failure::from_io("start a node", &error))?;
        if let Some(slot) = self.nodes.get_mut(usize::from(number) - 1) {
            *slot = Some(node);
        }
        Ok(())
    }

    /// Kills a node, as `kill -9` does.
    pub fn kill(&mut self, number: u16) {
        let node = self.nodes.get_mut(usize::from(number) - 1).and_then(Option::take);
        if let Some(mut node) = node {
            drop(node.kill());
            drop(node.wait());
        }
    }

    /// Waits until a node votes and, if others could elect it or be elected, has a leader and no
    /// change of the voters is under way: it would need nodes that may be stopped next.
    pub async fn wait_until_member(&mut self, number: u16) -> Outcome {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            self.check()?;
            if let Ok(answer) =
                ask(&self.address(number), "/members", None, STATUS_CALL_TIMEOUT).await
                && let Ok(members) = serde_json::from_slice::<Members>(&answer.body)
                && is_member(number, &members)
            {
                return Ok(());
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        let log = self.log(number);
        Err(Failure::failed(format!("node {number} did not join in time; see {}", log.display())))
    }

    /// Fails if the data is that of nodes at other ports: all of them moved would not find each
    /// other.
    async fn refuse_other_ports(&self) -> Outcome {
        let answer = ask(&self.address(1), "/members", None, STATUS_CALL_TIMEOUT).await;
        let members = answer.ok().and_then(|answer| serde_json::from_slice(&answer.body).ok());
        let Some(Members { members, .. }) = members else { return Ok(()) };
        // One that works alone moves by itself.
        let mut others = members.iter().filter(|member| member.node > 1);
        let is_moved = |member: &&MemberInfo| {
            u16::try_from(member.node).is_ok_and(|number| member.addr != self.address(number))
        };
        match others.find(is_moved) {
            None => Ok(()),
            Some(MemberInfo { node, addr, .. }) => Err(Failure::usage(format!(
                "the nodes in {} are at other ports: node {node} is at {addr}; start them with the \
                 --port that they had, or in another folder",
                self.dir.display()
            ))),
        }
    }

    /// Fails if a node ended by itself, once for each.
    pub fn check(&mut self) -> Outcome {
        for (number, slot) in (1..).zip(&mut self.nodes) {
            if let Some(node) = slot
                && let Ok(Some(status)) = node.try_wait()
            {
                *slot = None;
                let log = self.dir.join(format!("node{number}.log"));
                let lines = fs::read_to_string(&log).unwrap_or_default();
                // What it said last, unless it was killed.
                let why = lines.lines().last().and_then(|line| line.strip_prefix("esker: "));
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                return Err(Failure::failed(format!(
                    "node {number} ended ({status}){why}; see {}",
                    log.display()
                )));
            }
        }
        Ok(())
    }

    /// How many run, as far as is known.
    pub fn running(&self) -> usize {
        self.nodes.iter().flatten().count()
    }

    /// Ends the nodes as an operator does, and waits until they have.
    pub async fn stop(mut self) {
        for node in self.nodes.iter().flatten() {
            if let Some(pid) = Pid::from_raw(node.id().cast_signed()) {
                // It may have ended by itself.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        let runs = |node: &mut Child| matches!(node.try_wait(), Ok(None));
        while Instant::now() < deadline && self.nodes.iter_mut().flatten().any(runs) {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }
}

/// Whether a node has joined, as it says itself.
fn is_member(number: u16, members: &Members) -> bool {
    let votes = members.members.iter().any(|one| one.node == u64::from(number) && one.voter);
    // The first of three that start again waits for the second.
    let waits_for_others = members.members.len() > 1 && number == 1;
    votes && (waits_for_others || members.leader.is_some() && !members.changing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u64, leader: Option<u64>, changing: bool) -> Members {
        let named =
            |node| MemberInfo { node, addr: String::new(), raft: String::new(), voter: true };
        let members = (1..=count).map(named).collect();
        Members { leader: leader.map(named), members, cluster: String::new(), changing }
    }

    /// Three nodes were said to run while the third was being added. Stopped then, two of them
    /// could not go on without the other.
    #[test]
    fn a_node_that_is_being_added_has_not_joined() {
        assert!(!is_member(3, &members(3, Some(1), true)));
        assert!(is_member(3, &members(3, Some(1), false)));
        assert!(!is_member(3, &members(2, Some(1), false)));
        assert!(!is_member(3, &members(3, None, false)));
        // The first of three waits for the second.
        assert!(is_member(1, &members(3, None, true)));
        assert!(!is_member(1, &members(1, None, false)));
    }
}
