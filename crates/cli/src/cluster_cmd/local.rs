//! `esker cluster local`: three nodes for trying out.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use esker_command::exit::{Failure, Outcome, complain};
use esker_command::local_nodes::LocalNodes;
use esker_command::output::print;
use esker_command::quantity::number;

const EXAMPLES: &str = "\
Example:
  # In one terminal
  esker cluster local ./three

  # In another
  esker cluster status
  esker ts --n 3

The nodes listen on 127.0.0.1: clients on the port and every tenth above it, and
Raft one above each. Their log lines are in DIR/node1.log and so on. One that
ends is reported, and the others go on; the exit status is 1 then.";

const NODE_COUNT: u16 = 3;
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Run three nodes in one folder until it is interrupted
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LocalArguments {
    /// The folder of all three
    #[arg(value_name = "DIR", default_value = "./esker-cluster")]
    dir: PathBuf,
    /// The port of the first node
    #[arg(long, value_name = "PORT", default_value_t = 8080, allow_negative_numbers = true, value_parser = number::<u16>(1..=65_000))]
    port: u16,
}

pub async fn run(arguments: &LocalArguments) -> Outcome {
    let LocalArguments { dir, port } = arguments;
    let failed = |error| Failure::from_io("catch signals", &error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let program =
        std::env::current_exe().map_err(|error| Failure::from_io("find esker", &error))?;
    let started = async {
        let mut has_failed = false;
        let nodes = LocalNodes::start(program, dir, *port, NODE_COUNT, false, |failure| {
            has_failed = true;
            complain(failure.message());
            Ok(())
        });
        let nodes = nodes.await?;
        print(&format!("three nodes in {}, until it is interrupted\n", dir.display()))?;
        for number in 1..=NODE_COUNT {
            print(&format!("node {number}: http://{}\n", nodes.address(number)))?;
        }
        Ok((nodes, has_failed))
    };
    let (mut nodes, mut has_failed) = tokio::select! {
        nodes = started => nodes?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = until_all_ended(&mut nodes, &mut has_failed) => {}
    }
    nodes.stop().await;
    // Each that ended has its line.
    if has_failed { Err(Failure::silent()) } else { Ok(()) }
}

/// Reports each node that ends, until there is none: the others go on.
async fn until_all_ended(nodes: &mut LocalNodes, has_failed: &mut bool) {
    while nodes.running() > 0 {
        match nodes.check() {
            Ok(()) => tokio::time::sleep(CHECK_INTERVAL).await,
            Err(ended) => {
                *has_failed = true;
                complain(ended.message());
            }
        }
    }
}
