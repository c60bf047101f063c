//! `esker consensus renumber`: makes a copy an ordinary log, once its node has a new number.

use std::path::{Path, PathBuf};

use clap::Args;
use esker_consensus::{
    COPY_COMPONENT, ConsensusLog, Error, LogManager, ReadOnlyReason, StorageError, logs_in,
};
use esker_log::ReadOptions;
use serde_json::json;

use esker_command::exit::{Failure, Outcome};
use esker_command::output;

const EXAMPLES: &str = "\
Examples:
  esker consensus renumber ./copy
  esker consensus renumber ./copy --json | jq .logs

A copy opens read-only: the original may have promised and accepted more since, under the number of one node. First \
add a node with a new number, which no node of the group ever had, to the group; then run this command on the copy \
that the node starts with. It keeps everything that the copy has. DIR is one log, or that of many. Each log changes \
durably, at once or not at all: after a crash, run the command again. A log that is no copy stays as it is, and one \
that was repaired stays read-only, which exits with 1.

A node of `esker serve` has its number in its log: it joins with an empty folder instead, and this command refuses \
its log.";

/// Arguments of `esker consensus renumber`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RenumberArguments {
    /// The copy: one log, or a directory of many
    dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Makes the copies ordinary logs.
pub fn run(arguments: &RenumberArguments) -> Outcome {
    let RenumberArguments { dir, json } = arguments;
    let failed = |error: Error| Failure::from_consensus(error, dir);
    let (before, left) = match logs_in(dir).map_err(|error| failed(error.into()))? {
        Some(logs) => {
            let copies = || logs.iter().filter(|log| is(COPY_COMPONENT, &log.dir)).count();
            let before = copies();
            let manager = LogManager::builder(dir).must_exist(true).renumber().open();
            let closed = manager.map_err(Error::from).and_then(|all| Ok(all.close_all()?));
            closed.map_err(failed)?;
            (before, copies())
        }
        None => {
            let before = usize::from(is(COPY_COMPONENT, dir));
            one(dir)?;
            (before, usize::from(is(COPY_COMPONENT, dir)))
        }
    };
    let done = before.saturating_sub(left);
    match json {
        true => output::print_json(&json!({ "logs": done }))?,
        false => {
            let logs = output::counted(done as u64, "log");
            let why = if done == 0 { ": none is a copy that needs a number" } else { "" };
            output::print(&format!("renumbered {logs}{why}\n"))?;
        }
    }
    if left == 0 {
        return Ok(());
    }
    let reason = ReadOnlyReason::Repaired;
    Err(Failure::failed(format!(
        "{left} of {}: {}",
        dir.display(),
        StorageError::ReadOnly { reason }
    )))
}

fn one(dir: &Path) -> Outcome {
    let failed = |error: Error| Failure::from_consensus(error, dir);
    let log = ConsensusLog::builder(dir).must_exist(true).open();
    let log = log.map_err(|error| failed(error.into()))?;
    let is_node_label = esker_server::is_node_label(&log.options().label);
    let reason = log.stats().read_only;
    log.close().map_err(|error| failed(error.into()))?;
    match reason {
        None => Ok(()),
        Some(_) if is_node_label => Err(Failure::failed(format!(
            "{} is the log of a node of `esker serve`, which has its number in it: a node joins under a new number \
             with an empty folder",
            dir.display()
        ))),
        Some(ReadOnlyReason::Copied) => {
            let log = ConsensusLog::builder(dir).must_exist(true).renumber().open();
            log.map_err(Error::from).and_then(|log| Ok(log.close()?)).map_err(failed)
        }
        Some(reason) => Err(failed(StorageError::ReadOnly { reason }.into())),
    }
}

/// Whether the log in a directory has this component.
fn is(component: esker_log::Component, dir: &Path) -> bool {
    matches!(esker_log::component::identify(dir, ReadOptions::default()), Ok(Some(found)) if found == component)
}
