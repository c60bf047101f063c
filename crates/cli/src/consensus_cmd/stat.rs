//! `esker consensus stat`: a summary of a consensus log.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use esker_consensus::Slot;
use serde_json::json;

use super::inspection::{self, Target};
use crate::exit::Outcome;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  esker consensus stat ./node-1
  esker consensus stat ./node-1 --json | jq .frontier
  esker consensus stat ./tables --key users

It runs beside a writer, reads every durable record, and changes nothing.";

/// Arguments of `esker consensus stat`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatArguments {
    /// The log's directory, or that of many logs
    dir: PathBuf,
    /// One of many logs [default: all of them]
    #[arg(long)]
    key: Option<String>,
    /// Print one JSON object per log
    #[arg(long)]
    json: bool,
}

/// Prints a summary of each log.
pub fn run(arguments: &StatArguments) -> Outcome {
    let targets = inspection::targets(&arguments.dir, arguments.key.as_deref())?;
    targets.iter().try_for_each(|target| summarize(target, arguments.json))
}

fn summarize(target: &Target, as_json: bool) -> Outcome {
    let found = inspection::read(&target.dir)?;
    let committed = || found.slots.iter().filter(|(_, slot)| slot.committed).map(|(n, _)| *n);
    let (lowest, highest) = (committed().next(), committed().next_back());
    let count = committed().count();
    let uncommitted = found.slots.len() - count;
    let bytes: u64 = found.slots.values().map(|slot| slot.len).sum();
    let records = found.records;
    let number = |slot: Option<Slot>| slot.map(u64::from);
    if as_json {
        let mut summary = json!({
            "dir": target.dir.to_string_lossy(),
            "promised": found.promised.map(|ballot| json!({ "number": ballot.number, "node": ballot.node })),
            "floor": number(found.floor),
            "frontier": number(found.frontier),
            "committed": count,
            "lowest": number(lowest),
            "highest": number(highest),
            "uncommitted": uncommitted,
            "bytes": bytes,
            "quarantined": inspection::ranges(&found.quarantined),
            "records": {
                "promises": records.promises,
                "accepts": records.accepts,
                "commits": records.commits,
                "values": records.values,
                "states": records.truncations,
                "checkpoints": records.checkpoints,
            },
        });
        target.add_key(&mut summary);
        return output::print_json(&summary);
    }
    let shown =
        |slot: Option<Slot>| slot.map_or_else(|| "none".to_owned(), |slot| slot.to_string());
    let mut text = String::new();
    let mut row = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(text, "{name:<12} {value}");
    };
    if let Some(key) = &target.key {
        row("key", &key.escape_ascii());
    }
    row("directory", &target.dir.display());
    row("promised", &found.promised.map_or_else(|| "none".to_owned(), |ballot| ballot.to_string()));
    row("floor", &shown(found.floor));
    row("frontier", &shown(found.frontier));
    row("committed", &count);
    row("lowest", &shown(lowest));
    row("highest", &shown(highest));
    row("uncommitted", &uncommitted);
    row("bytes", &bytes);
    for range in &found.quarantined {
        row("quarantined", range);
    }
    output::print(&text)
}
