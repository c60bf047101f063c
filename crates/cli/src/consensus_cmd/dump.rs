//! `esker consensus dump`: every slot, in order.

use std::cmp::Ordering;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use esker_consensus::{Error, InspectSummary, Inspection, Slot};
use serde_json::json;

use crate::consensus_dir::{self, Target};
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::output;

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
    let found = target.read(|_| {})?;
    if let (Some(from), Some(floor)) = (arguments.from.map(Slot), found.floor)
        && from <= floor
    {
        return Err(Failure::from_consensus(Error::Truncated { floor }, &target.dir));
    }
    if let (Some(from), Some(last)) = (arguments.from, found.totals.last)
        && Slot(from) > last
    {
        complain(&format!("note: the highest slot is {last}"));
    }
    for range in &found.quarantined {
        complain(&format!(
            "note: {range} are quarantined; a missing slot may have been among them"
        ));
    }
    let mut out = output::buffered()?;
    let (mut values, mut ended) = (found.values(), Ok(true));
    let visited = found.visit(Slot(arguments.from.unwrap_or(0)), |slot, summary| {
        if arguments.committed && !summary.committed {
            return Ok(ControlFlow::Continue(()));
        }
        let value = values.get(slot, summary)?;
        ended = output::unless_closed(write_slot(&mut out, slot, summary, value, arguments.json));
        Ok(if matches!(ended, Ok(true)) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    });
    if !ended? {
        return Ok(());
    }
    // What was printed before the failure is complete.
    output::unless_closed(out.flush())?;
    visited.map_err(|error| target.failure(error))?;
    report_lost(&found, &target, arguments)
}

fn write_slot(
    out: &mut impl Write,
    slot: Slot,
    summary: &InspectSummary,
    value: &[u8],
    as_json: bool,
) -> io::Result<()> {
    if !as_json {
        let state = if summary.committed { "committed" } else { "accepted" };
        let (ballot, len, value) = (summary.ballot, summary.len, value.escape_ascii());
        return writeln!(out, "{slot} {ballot} {state} {len} {value}");
    }
    let mut line = json!({
        "slot": slot.0,
        "ballot": { "number": summary.ballot.number, "node": summary.ballot.node },
        "committed": summary.committed,
        "len": summary.len,
        "offset": summary.offset.0,
    });
    output::add_bytes(&mut line, "value", value);
    writeln!(out, "{line}")
}

/// Reports the slots that may be lost, from `--from` on.
fn report_lost(found: &Inspection, target: &Target, arguments: &DumpArguments) -> Outcome {
    let from = Slot(arguments.from.unwrap_or(0));
    let mut count = 0_u64;
    let visited = found.lost(!arguments.committed, |range| {
        let (first, last) = range.into_inner();
        let first = first.max(from);
        match first.cmp(&last) {
            Ordering::Less => complain(&format!("slots {first} to {last} may be lost")),
            Ordering::Equal => complain(&format!("slot {first} may be lost")),
            Ordering::Greater => return,
        }
        count = (last.0 - first.0).saturating_add(1).saturating_add(count);
    });
    visited.map_err(|error| target.failure(error))?;
    if count == 0 {
        return Ok(());
    }
    let slots = output::counted(count, "slot");
    Err(Failure::corrupt(format!(
        "corrupt records of {} were quarantined, and {slots} may be lost with them; copy them from \
         another node",
        arguments.dir.display()
    )))
}
