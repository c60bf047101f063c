//! The child process that builds a log for `log/open`. For the figure after a kill, the parent
//! kills it while it appends.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use esker_log::{Append, Log, Result};

use crate::log::log_arguments::After;
use crate::records::payload::{Payload, Recipe};
use esker_command::exit::{Failure, Outcome};
use esker_command::log_options::WritingArguments;
use esker_command::{output, quantity};

/// Records in one call.
const BATCH_RECORDS: usize = 256;

/// Arguments of the hidden command.
#[derive(Debug, Args)]
pub struct BuildArguments {
    dir: PathBuf,
    /// Payload bytes to append.
    #[arg(long, value_parser = quantity::bytes)]
    bytes: u64,
    #[arg(long, value_parser = quantity::size_range)]
    size: std::ops::RangeInclusive<u32>,
    #[arg(long)]
    seed: u64,
    #[arg(long, value_enum)]
    then: After,
    #[command(flatten)]
    writing: WritingArguments,
}

/// Appends to the log, prints the last durable record, and closes the log, or appends until it is
/// killed.
pub fn run(arguments: &BuildArguments) -> Outcome {
    // Exits when the parent exits.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(esker_command::exit::Status::Failed as i32);
    });
    let log_failure = |error| Failure::from_log(&error, &arguments.dir);
    let log = Log::builder(&arguments.dir)
        .options(arguments.writing.options())
        .open()
        .map_err(|error| log_failure(error.into()))?;
    let recipe = Recipe::new(arguments.seed, arguments.size.clone());
    let mut payloads: Vec<Payload> = (0..BATCH_RECORDS).map(|_| recipe.payload(0)).collect();
    let mut count = log.durable().0;
    let mut left = arguments.bytes;
    while left > 0 {
        left = left.saturating_sub(append(&log, &mut payloads, &mut count).map_err(log_failure)?);
    }
    log.barrier()
        .and_then(esker_log::Ticket::blocking_wait)
        .map_err(|error| log_failure(error.into()))?;
    output::print(&format!("{count}\n"))?;
    match arguments.then {
        After::Close => log.close().map_err(|error| log_failure(error.into())),
        After::Kill => loop {
            append(&log, &mut payloads, &mut count).map_err(log_failure)?;
        },
    }
}

/// Appends a batch. Returns its bytes.
fn append(log: &Log, payloads: &mut [Payload], count: &mut u64) -> Result<u64> {
    let records: Vec<&[u8]> =
        (*count..).zip(payloads).map(|(count, payload)| payload.record(count)).collect();
    // Dropping the ticket requests the commit that the policy requires, without waiting for it.
    drop(log.write(Append::records(&records))?);
    *count += records.len() as u64;
    Ok(records.iter().map(|record| record.len() as u64).sum())
}
