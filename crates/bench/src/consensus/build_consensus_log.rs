//! The child process that builds a log for `consensus/recover`. For the figure after a kill, the
//! parent kills it while it writes.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use esker_consensus::{ConsensusLog, Mode, Slot};

use super::compare::stamp_value;
use super::consensus_arguments::{BALLOT, consensus_options};
use crate::log::log_arguments::After;
use esker_command::exit::{Failure, Outcome};
use esker_command::log_options::IoArguments;
use esker_command::output;

/// Arguments of the hidden command.
#[derive(Debug, Args)]
pub struct ConsensusBuildArguments {
    dir: PathBuf,
    /// Slots to accept and commit.
    #[arg(long)]
    entries: u64,
    #[arg(long)]
    size: u32,
    #[arg(long, value_enum)]
    then: After,
    #[command(flatten)]
    io: IoArguments,
}

/// Accepts and commits, prints how many, and closes the log, or writes promises until it is killed.
pub fn run(arguments: &ConsensusBuildArguments) -> Outcome {
    // Exits when the parent exits.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(esker_command::exit::Status::Failed as i32);
    });
    let options = consensus_options(&arguments.io, Mode::Volatile, true);
    let dir = &arguments.dir;
    let log = ConsensusLog::builder(dir)
        .options(options)
        .open()
        .map_err(Failure::in_consensus_log(dir))?;
    let mut value = vec![0; arguments.size as usize];
    let mut last = None;
    for slot in 0..arguments.entries {
        stamp_value(slot, &mut value);
        let ticket = log.accept(Slot(slot), BALLOT, &value);
        ticket
            .map_err(Failure::in_consensus_log(dir))?
            .blocking_wait()
            .map_err(Failure::in_consensus_log(dir))?;
        last = Some(log.commit(Slot(slot), BALLOT).map_err(Failure::in_consensus_log(dir))?);
    }
    last.map_or(Ok(()), |ticket| ticket.blocking_wait()).map_err(Failure::in_consensus_log(dir))?;
    let count = log.frontier().map_or(0, |frontier| frontier.0 + 1);
    output::print(&format!("{count}\n"))?;
    if arguments.then == After::Close {
        return log.close().map_err(Failure::in_consensus_log(dir));
    }
    loop {
        log.promise(BALLOT, Slot(count))
            .map_err(Failure::in_consensus_log(dir))?
            .blocking_wait()
            .map_err(Failure::in_consensus_log(dir))?;
    }
}
