//! `esker snapshot restore`: prints the content of a snapshot.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use esker_consensus::Slot;

use super::shown::open;
use crate::exit::{Failure, Outcome, complain};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  esker snapshot restore ./node-1 > state.bin
  esker snapshot restore ./node-1 --at-or-before 4999 | my-state-machine --import

It reads the whole snapshot before it prints the first byte. One that is not whole is passed over and named on standard \
error. The slot goes to standard error, too: continue with the entry after it.";

/// Arguments of `esker snapshot restore`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RestoreArguments {
    /// The log's directory
    dir: PathBuf,
    /// The newest snapshot at or before this slot [default: the newest]
    #[arg(long, value_name = "N")]
    at_or_before: Option<u64>,
}

/// Prints the content of the newest snapshot that is whole.
pub fn run(arguments: &RestoreArguments) -> Outcome {
    let dir = &arguments.dir;
    let wanted = Slot(arguments.at_or_before.unwrap_or(u64::MAX));
    let mut snapshot =
        open(dir)?.at_or_before(wanted).map_err(|error| Failure::of_consensus(&error, dir))?;
    for skipped in snapshot.skipped() {
        complain(&format!("passed over: {}", Failure::of_consensus(skipped, dir).message()));
    }
    let slot = snapshot.slot();
    let closed = |error| Failure::of_io("write standard output", &error);
    let mut out = output::buffered().map_err(closed)?;
    let written = io::copy(&mut snapshot, &mut out).and_then(|_| out.flush());
    output::unless_closed(written)?;
    complain(&format!("the state after slot {slot}"));
    Ok(())
}
