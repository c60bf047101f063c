//! `esker cluster local`: three nodes for trying out.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Failure, Outcome};
use crate::local_nodes::LocalNodes;
use crate::output::print;

const EXAMPLES: &str = "\
Example:
  # In one terminal
  esker cluster local ./three

  # In another
  esker cluster status
  esker ts --n 3

The nodes listen on 127.0.0.1: clients on the port and every tenth above it, and Raft one above each.
Their log lines are in DIR/node1.log and so on.";

const NODES: u16 = 3;
const LOOK: Duration = Duration::from_millis(200);

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

pub async fn run(arguments: &LocalArguments) -> Outcome {
    let LocalArguments { dir, port } = arguments;
    let failed = |error| Failure::of_io("catch signals", &error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let started = async {
        let nodes = LocalNodes::start(dir, *port, NODES).await?;
        print(&format!("three nodes in {}, until it is interrupted\n", dir.display()))?;
        for number in 1..=NODES {
            print(&format!("node {number}: http://{}\n", nodes.address(number)))?;
        }
        Ok(nodes)
    };
    let mut nodes = tokio::select! {
        nodes = started => nodes?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        ended = any_ended(&mut nodes) => return ended,
    }
    nodes.stop().await;
    Ok(())
}

async fn any_ended(nodes: &mut LocalNodes) -> Outcome {
    loop {
        nodes.check()?;
        tokio::time::sleep(LOOK).await;
    }
}
