//! `esker consensus dump`: every slot, in order.

use std::cmp::Ordering;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use esker_consensus::{Error, Inspection, Slot};
use serde_json::{Value, json};

use crate::consensus_dir;
use crate::exit::{Failure, Outcome, complain};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  esker consensus dump ./node-1
  esker consensus dump ./node-1 --from 100 --committed --json | jq .value

A line has slot, ballot, state, length and value. With --json, a value that is not UTF-8 text is base 64 \
in `value_b64`.";

/// Arguments of `esker consensus dump`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DumpArguments {
    /// The log's directory, or that of many logs
    dir: PathBuf,
    /// The one of many logs
    #[arg(long)]
    key: Option<String>,
    /// The first slot; a truncated one is an error [default: the first above the floor]
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Committed slots only
    #[arg(long)]
    committed: bool,
    /// Print one JSON object per slot
    #[arg(long)]
    json: bool,
}

/// Prints the slots.
pub fn run(arguments: &DumpArguments) -> Outcome {
    let target = consensus_dir::target(&arguments.dir, arguments.key.as_deref())?;
    let found = target.read()?;
    if let (Some(from), Some(floor)) = (arguments.from.map(Slot), found.floor)
        && from <= floor
    {
        return Err(Failure::of_consensus(&Error::Truncated { floor }, &target.dir));
    }
    if let (Some(from), Some((last, _))) = (arguments.from, found.slots.last_key_value())
        && Slot(from) > *last
    {
        complain(&format!("note: the highest slot is {last}"));
    }
    for range in &found.quarantined {
        complain(&format!(
            "note: {range} are quarantined; a missing slot may have been among them"
        ));
    }
    let closed = |error| Failure::of_io("write standard output", &error);
    let mut out = output::buffered().map_err(closed)?;
    for (slot, summary) in found.slots.range(Slot(arguments.from.unwrap_or(0))..) {
        if arguments.committed && !summary.committed {
            continue;
        }
        let value =
            found.value(*slot).map_err(|error| Failure::of_consensus(&error, &target.dir))?;
        let value = value.as_deref().unwrap_or_default();
        let written = if arguments.json {
            let mut line = json!({
                "slot": slot.0,
                "ballot": { "number": summary.ballot.number, "node": summary.ballot.node },
                "committed": summary.committed,
                "len": summary.len,
                "offset": summary.offset.0,
            });
            let (key, text) = match std::str::from_utf8(value) {
                Ok(text) => ("value", text.to_owned()),
                Err(_) => ("value_b64", output::base64(value)),
            };
            line[key] = Value::String(text);
            writeln!(out, "{line}")
        } else {
            let state = if summary.committed { "committed" } else { "accepted" };
            writeln!(
                out,
                "{slot} {} {state} {} {}",
                summary.ballot,
                summary.len,
                value.escape_ascii()
            )
        };
        if !output::unless_closed(written)? {
            return Ok(());
        }
    }
    output::unless_closed(out.flush())?;
    report_lost(&found, arguments)
}

/// Reports the slots that may be lost, from `--from` on.
fn report_lost(found: &Inspection, arguments: &DumpArguments) -> Outcome {
    let from = Slot(arguments.from.unwrap_or(0));
    let mut count = 0;
    for range in found.lost(!arguments.committed) {
        let (first, last) = range.into_inner();
        let first = first.max(from);
        match first.cmp(&last) {
            Ordering::Less => complain(&format!("slots {first} to {last} may be lost")),
            Ordering::Equal => complain(&format!("slot {first} may be lost")),
            Ordering::Greater => continue,
        }
        count += last.0 - first.0 + 1;
    }
    if count == 0 {
        return Ok(());
    }
    let slots = if count == 1 { "1 slot".to_owned() } else { format!("{count} slots") };
    Err(Failure::corrupt(format!(
        "corrupt records of {} were quarantined, and {slots} may be lost with them; copy them from \
         another node",
        arguments.dir.display()
    )))
}
