//! `esker snapshot restore`: prints the state of a snapshot.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::Args;
use esker_consensus::{Slot, Snapshot};

use super::snapshot_text::{as_json, failure, open};
use crate::consensus_dir;
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::output;

const EXAMPLES: &str = "\
Examples:
  esker snapshot restore ./node-1 > state.bin
  esker snapshot restore ./node-1 --at-or-before 4999 \\
    | my-state-machine --import
  esker snapshot restore ./tables --key users > users.bin

It reads the whole snapshot before it writes the first byte. One that is not whole is passed over and named on standard \
error. The slot goes to standard error, too: continue with the entry after it. With --json, the state is base 64 \
in `state_b64`.";

/// Bytes that are encoded at once: whole groups of base 64.
const ENCODED_BYTES: usize = 3 << 16;

/// Arguments of `esker snapshot restore`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RestoreArguments {
    /// The log's directory, or that of many logs
    dir: PathBuf,
    /// The one of many logs
    #[arg(long)]
    key: Option<String>,
    /// The newest snapshot at or before this slot [default: the newest]
    #[arg(long, value_name = "N")]
    at_or_before: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Hands over the state of the newest snapshot that is whole.
pub fn run(arguments: &RestoreArguments) -> Outcome {
    let dir = &consensus_dir::target(&arguments.dir, arguments.key.as_deref())?.dir;
    let snapshots = open(dir)?;
    let wanted = Slot(arguments.at_or_before.unwrap_or(u64::MAX));
    let mut snapshot = snapshots.at_or_before(wanted).map_err(|error| {
        let before = arguments.at_or_before.map(|slot| format!(" at or before slot {slot}"));
        failure(error.into(), dir, &snapshots, &before.unwrap_or_default())
    })?;
    for skipped in snapshot.skipped() {
        complain(&format!(
            "passed over: {}",
            Failure::from_consensus(skipped.clone(), dir).message()
        ));
    }
    let mut out = output::buffered()?;
    let written = if arguments.json {
        write_json(&mut snapshot, &mut out)
    } else {
        io::copy(&mut snapshot, &mut out).map(drop)
    };
    output::unless_closed(written.and_then(|()| out.flush()))?;
    complain(&format!("the state after slot {}", snapshot.slot()));
    Ok(())
}

/// Writes the description of a snapshot with its state, which need not fit in memory.
fn write_json(snapshot: &mut Snapshot, out: &mut impl Write) -> io::Result<()> {
    let description = as_json(snapshot.info()).to_string();
    write!(out, "{},\"state_b64\":\"", description.trim_end_matches('}'))?;
    let mut bytes = Vec::with_capacity(ENCODED_BYTES);
    loop {
        bytes.clear();
        snapshot.by_ref().take(ENCODED_BYTES as u64).read_to_end(&mut bytes)?;
        out.write_all(output::base64(&bytes).as_bytes())?;
        if bytes.len() < ENCODED_BYTES {
            return writeln!(out, "\"}}");
        }
    }
}
