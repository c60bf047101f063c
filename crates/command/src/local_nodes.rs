//! Nodes of a cluster on this machine, each a process of its own.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use esker_server::{MemberInfo, Members, ask, make_certificates};
use rustix::process::{Pid, Signal, kill_process};

use crate::exit::{Failure, Outcome};
use crate::library_errors::with_causes;

/// Variables of the environment that are for one node, or for the programs of a whole machine: a
/// build without the features would refuse the latter.
const NOT_INHERITED: [&str; 22] = [
    "ESKER_ADMIN_TOKEN_FILE",
    "ESKER_ADVERTISE",
    "ESKER_CERT",
    "ESKER_CLIENT_CA",
    "ESKER_CLUSTER",
    "ESKER_CONFIG",
    "ESKER_DATA",
    "ESKER_JOIN",
    "ESKER_KEY",
    "ESKER_LISTEN",
    "ESKER_PEER_CA",
    "ESKER_PEER_CERT",
    "ESKER_PEER_KEY",
    "ESKER_PLAIN_HTTP",
    "ESKER_PLAIN_PEERS",
    "ESKER_PROFILE_LISTEN",
    "ESKER_RAFT_ADVERTISE",
    "HTTP_PORT",
    "NODE_ID",
    "OLTP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "RAFT_ADDR",
];
/// The flags of a node's certificates, and their files.
const CERTIFICATE_FLAGS: [(&str, &str); 5] = [
    ("--cert", "server.pem"),
    ("--key", "server-key.pem"),
    ("--peer-ca", "ca.pem"),
    ("--peer-cert", "cert.pem"),
    ("--peer-key", "key.pem"),
];
/// How long a node may take until it votes.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// How long nodes may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);
/// How the error of a command begins: one of its own, and one of the command line.
const ERROR_STARTS: [&str; 2] = ["esker: ", "error: "];
const ERROR_LINES_MAX: usize = 3;
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const STATUS_CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Nodes 1 and above, on loopback: clients on a port and every tenth above it, and Raft one above
/// each. They end with this.
#[derive(Debug)]
pub struct LocalNodes {
    program: PathBuf,
    dir: PathBuf,
    port: u16,
    uses_tls: bool,
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
    /// has the others join. Those that have data come first: a new one needs their answer. With
    /// `uses_tls`, nodes have certificates of [`LocalNodes::authority`], and talk with TLS alone;
    /// clients may do without.
    ///
    /// `failed` gets what another node than the first fails with, and says whether the others go
    /// on.
    pub async fn start(
        program: PathBuf,
        dir: &Path,
        port: u16,
        count: u16,
        uses_tls: bool,
        mut failed: impl FnMut(Failure) -> Outcome,
    ) -> Outcome<Self> {
        fs::create_dir_all(dir).map_err(|error| Failure::from_io(dir.display(), &error))?;
        let mut nodes = Self { program, dir: dir.to_path_buf(), port, uses_tls, nodes: Vec::new() };
        if uses_tls {
            let hosts = (1..=count).map(|number| (number.into(), vec!["127.0.0.1".to_owned()]));
            let made = make_certificates(&nodes.certificates(), &hosts.collect());
            made.map_err(|error| Failure::failed(with_causes(&error)))?;
        }
        nodes.nodes.resize_with(usize::from(count), || None);
        // A server that answers there would be taken for one of these nodes.
        check_ports(port, count).map_err(|error| {
            Failure::failed(error.to_string()).or_else("give other ports with --port")
        })?;
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

    /// Returns the first of these ports at which so many nodes can listen.
    ///
    /// # Errors
    /// If there is none: why the last of them is none.
    pub fn free_port(ports: impl IntoIterator<Item = u16>, count: u16) -> io::Result<u16> {
        let mut failed = io::Error::from(io::ErrorKind::InvalidInput);
        for port in ports {
            match check_ports(port, count) {
                Ok(()) => return Ok(port),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn certificates(&self) -> PathBuf {
        self.dir.join("certs")
    }

    /// The authority of the nodes, if they use TLS.
    pub fn authority(&self) -> PathBuf {
        self.certificates().join("ca.pem")
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

    /// The number of the leader, as node 1 knows it. Waits for one: on a busy machine an election
    /// may be under way.
    pub async fn leader(&self) -> Outcome<u16> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.known_leader().await {
                Err(_) if Instant::now() < deadline => tokio::time::sleep(CHECK_INTERVAL).await,
                found => return found,
            }
        }
    }

    async fn known_leader(&self) -> Outcome<u16> {
        let answer = ask(&self.address(1), "/members", None, STATUS_CALL_TIMEOUT).await;
        let answer = answer.map_err(|error| Failure::failed(with_causes(&error)))?;
        let members = serde_json::from_slice::<Members>(&answer.body).ok();
        let leader = members.and_then(|members| u16::try_from(members.leader?.node).ok());
        leader.ok_or_else(|| Failure::failed("there is no leader"))
    }

    fn at(&self, number: u16, above: u16) -> String {
        node_address(self.port, number, above)
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
        if self.uses_tls {
            let folder = self.certificates().join(format!("node-{number}"));
            for (flag, file) in CERTIFICATE_FLAGS {
                command.arg(flag).arg(folder.join(file));
            }
            // This program asks for their state without.
            command.arg("--plain-http");
        }
        for name in NOT_INHERITED {
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
        let mut why = String::new();
        while Instant::now() < deadline {
            self.check()?;
            match ask(&self.address(number), "/members", None, STATUS_CALL_TIMEOUT).await {
                Ok(answer) => match serde_json::from_slice::<Members>(&answer.body) {
                    Ok(members) if is_member(number, &members) => return Ok(()),
                    _ => why = "it has no vote or no leader".into(),
                },
                Err(error) => why = with_causes(&error),
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        Err(Failure::failed(format!(
            "node {number} did not join within {} s: {why}; see {}",
            START_TIMEOUT.as_secs(),
            self.log(number).display()
        )))
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
                let why = end_reason(status, &lines);
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

/// The address of a node: for clients, or that port `above` it.
fn node_address(port: u16, number: u16, above: u16) -> String {
    format!("127.0.0.1:{}", port + 10 * (number - 1) + above)
}

/// Fails if `count` nodes cannot listen from this port on.
fn check_ports(port: u16, count: u16) -> io::Result<()> {
    for address in
        (1..=count).flat_map(|number| [0, 1].map(|above| node_address(port, number, above)))
    {
        TcpListener::bind(&address).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
        })?;
    }
    Ok(())
}

/// Why a node ended, by the last lines of its output: those that are no log lines, without hints.
/// Nothing for one that was killed.
fn end_reason(status: ExitStatus, output: &str) -> String {
    if status.signal() == Some(Signal::KILL.as_raw()) {
        return String::new();
    }
    let is_hint = |line: &str| {
        line.is_empty() || line.starts_with("For more information") || line.starts_with("note: ")
    };
    let lines = output.lines().rev().take_while(|line| !line.starts_with('{')).map(str::trim);
    let mut said: Vec<_> = lines.filter(|line| !is_hint(line)).take(ERROR_LINES_MAX).collect();
    said.reverse();
    let begin =
        said.iter().rposition(|line| ERROR_STARTS.iter().any(|start| line.starts_with(start)));
    let text = said[begin.unwrap_or_default()..].join(" ");
    match ERROR_STARTS.iter().find_map(|start| text.strip_prefix(start)).unwrap_or(&text) {
        "" => " without a message: its folder may be full".into(),
        text => format!(": {text}"),
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
    /// Only errors that begin with `esker: ` were shown.
    #[test]
    fn end_reason_is_the_error_in_any_form() {
        let failed = ExitStatus::from_raw(1 << 8);
        let log = "{\"level\":\"info\"}\n";
        let said = |lines: &str| end_reason(failed, &format!("esker: before\n{log}{lines}"));
        assert_eq!(said("esker: note: a\nesker: no room\n"), ": no room");
        let usage =
            "error: invalid value 'bad' for '--rtt-ms'\n\nFor more information, try '--help'.\n";
        assert_eq!(said(usage), ": invalid value 'bad' for '--rtt-ms'");
        let panic =
            "thread 'main' panicked at a.rs:1:1:\nno luck\nnote: run with `RUST_BACKTRACE=1`\n";
        assert_eq!(said(panic), ": thread 'main' panicked at a.rs:1:1: no luck");
        let aborted = ExitStatus::from_raw(6);
        let memory = "memory allocation of 4194304 bytes failed\n";
        assert_eq!(end_reason(aborted, memory), format!(": {}", memory.trim()));
        assert!(said("").contains("without a message"));
        assert_eq!(end_reason(ExitStatus::from_raw(9), "anything"), "");
    }

    #[test]
    fn ports_in_use_are_named() {
        let other = TcpListener::bind("127.0.0.1:0");
        let taken = other.as_ref().map(|other| other.local_addr().map_or(0, |at| at.port()));
        let taken = taken.unwrap_or_default();
        let why = LocalNodes::free_port([taken], 1).map_err(|error| error.to_string());
        let named = format!("cannot listen on 127.0.0.1:{taken}: ");
        assert!(why.as_ref().is_err_and(|why| why.starts_with(&named)), "{why:?}");
    }
}
