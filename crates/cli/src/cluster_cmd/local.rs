//! `esker cluster local`: three nodes for trying out.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use esker_server::{Members, ask};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Failure, Outcome};
use crate::output::print;

const EXAMPLES: &str = "\
Example:
  # In one terminal
  esker cluster local ./three

  # In another
  esker cluster status
  esker ts --n 3

The nodes listen on 127.0.0.1: clients on the port and every tenth above it, and Raft one above each.";

/// How long three nodes may take until they are a cluster.
const START: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
const ASK: Duration = Duration::from_secs(1);
const NODES: u16 = 3;

/// Run three nodes in one folder until it is interrupted
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LocalArguments {
    /// The folder of all three
    #[arg(value_name = "DIR", default_value = "./esker-cluster")]
    dir: PathBuf,
    /// The port of the first node
    #[arg(long, value_name = "PORT", default_value_t = 8080, value_parser = clap::value_parser!(u16).range(1..=65_000))]
    port: u16,
}

/// The nodes, which end with this process.
struct Nodes(Vec<Child>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.0 {
            drop(node.kill());
            drop(node.wait());
        }
    }
}

pub async fn run(arguments: &LocalArguments) -> Outcome {
    let LocalArguments { dir, port } = arguments;
    let failed = |error| Failure::of_io("catch signals", &error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    fs::create_dir_all(dir).map_err(|error| Failure::of_io(dir.display(), &error))?;
    let mut nodes = Nodes(Vec::new());
    for number in 1..=NODES {
        nodes.0.push(start(dir, *port, number)?);
        wait_until_member(&mut nodes, dir, *port, number).await?;
    }
    print(&format!("three nodes in {}, until it is interrupted\n", dir.display()))?;
    for number in 1..=NODES {
        print(&format!("node {number}: http://{}\n", address(*port, number, 0)))?;
    }
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        ended = any_ended(&mut nodes, dir) => return ended,
    }
    stop(&mut nodes).await;
    Ok(())
}

fn address(port: u16, number: u16, above: u16) -> String {
    format!("127.0.0.1:{}", port + 10 * (number - 1) + above)
}

fn log_of(dir: &Path, number: u16) -> PathBuf {
    dir.join(format!("node{number}.log"))
}

fn start(dir: &Path, port: u16, number: u16) -> Outcome<Child> {
    let program = std::env::current_exe().map_err(|error| Failure::of_io("find esker", &error))?;
    let path = log_of(dir, number);
    let of_file = |error| Failure::of_io(path.display(), &error);
    let out = File::options().create(true).append(true).open(&path).map_err(of_file)?;
    let errors = out.try_clone().map_err(of_file)?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--data").arg(dir.join(format!("node{number}")));
    command.args(["--node-id", &number.to_string()]);
    command.args(["--listen", &address(port, number, 0)]);
    command.args(["--raft-listen", &address(port, number, 1)]);
    if number > 1 {
        command.args(["--join", &address(port, 1, 0)]);
    }
    command.stdin(Stdio::null()).stdout(out).stderr(errors);
    command.spawn().map_err(|error| Failure::of_io("start a node", &error))
}

/// Waits until a node votes. After a restart of all three, that takes the second one.
async fn wait_until_member(nodes: &mut Nodes, dir: &Path, port: u16, number: u16) -> Outcome {
    let deadline = Instant::now() + START;
    let address = address(port, number, 0);
    while Instant::now() < deadline {
        check(nodes, dir)?;
        if let Ok(answer) = ask(&address, "/members", None, ASK).await
            && let Ok(members) = serde_json::from_slice::<Members>(&answer.body)
        {
            let votes =
                members.members.iter().any(|one| one.node == u64::from(number) && one.voter);
            // The first of three that start again waits for the second.
            let needs_leader = members.members.len() < 2 || number > 1;
            if votes && (members.leader.is_some() || !needs_leader) {
                return Ok(());
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    let log = log_of(dir, number);
    Err(Failure::failed(format!("node {number} did not join in time; see {}", log.display())))
}

fn check(nodes: &mut Nodes, dir: &Path) -> Outcome {
    for (number, node) in (1..).zip(&mut nodes.0) {
        if let Ok(Some(status)) = node.try_wait() {
            let log = log_of(dir, number);
            let why = fs::read_to_string(&log).unwrap_or_default();
            let why = why.lines().last().unwrap_or_default().to_owned();
            return Err(Failure::failed(format!(
                "node {number} ended ({status}): {why}; see {}",
                log.display()
            )));
        }
    }
    Ok(())
}

async fn any_ended(nodes: &mut Nodes, dir: &Path) -> Outcome {
    loop {
        check(nodes, dir)?;
        tokio::time::sleep(LOOK * 4).await;
    }
}

/// Ends the nodes as an operator does, and waits until they have.
async fn stop(nodes: &mut Nodes) {
    for node in &nodes.0 {
        if let Some(pid) = rustix::process::Pid::from_raw(node.id().cast_signed()) {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
    let deadline = Instant::now() + Duration::from_secs(12);
    while Instant::now() < deadline
        && nodes.0.iter_mut().any(|node| matches!(node.try_wait(), Ok(None)))
    {
        tokio::time::sleep(LOOK).await;
    }
}
