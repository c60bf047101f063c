//! `esker consensus verify`: checks every byte of the underlying log and every consensus record.

use std::path::PathBuf;

use clap::Args;
use esker_log::ReadOptions;
use serde_json::json;

use super::inspection::{self, Target};
use crate::exit::{Failure, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  esker consensus verify ./node-1
  esker consensus verify ./node-1 --json | jq .damage

It takes no lock and changes nothing. Exit status 0 for a log without corruption, 3 when durable bytes are corrupt or \
a record contradicts another. After `esker log repair` a consensus log is read-only, which this command reports. \
With --json, `from` is the last record before a quarantined range, and `to` the last in it.";

/// Arguments of `esker consensus verify`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArguments {
    /// The log's directory, or that of many logs
    dir: PathBuf,
    /// One of many logs [default: all of them]
    #[arg(long)]
    key: Option<String>,
    /// Print one JSON object per log
    #[arg(long)]
    json: bool,
}

/// Checks each log, and fails when one is corrupt, after it has checked all.
pub fn run(arguments: &VerifyArguments) -> Outcome {
    let targets = inspection::targets(&arguments.dir, arguments.key.as_deref())?;
    let mut first = Ok(());
    for target in &targets {
        first = first.and(check(target, arguments.json));
    }
    first
}

fn check(target: &Target, as_json: bool) -> Outcome {
    let dir = &target.dir;
    let report = esker_log::verify(dir, ReadOptions::default())
        .map_err(|error| Failure::of_log(&error, dir))?;
    let valid = report.corruption.is_empty() && report.quarantined.is_empty();
    let found = if valid { Some(inspection::read(dir)?) } else { None };
    let invalid = found.as_ref().map_or(&[][..], |found| &found.invalid_records);
    if as_json {
        let mut checked = json!({
            "sound": valid && invalid.is_empty(),
            "records": report.records,
            "bytes": report.bytes,
            "slots": found.as_ref().map(|found| found.slots.len()),
            "damage": report.corruption.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "quarantined": inspection::ranges(&report.quarantined),
            "flaws": invalid
                .iter()
                .map(|record| json!({ "record": record.seq.0, "what": record.what }))
                .collect::<Vec<_>>(),
        });
        target.add_key(&mut checked);
        output::print_json(&checked)?;
    } else {
        if let Some(key) = &target.key {
            output::print(&format!("log {}\n", key.escape_ascii()))?;
        }
        let mut text = format!("checked {} records, {} bytes\n", report.records, report.bytes);
        report.corruption.iter().for_each(|corruption| text += &format!("{corruption}\n"));
        for range in &report.quarantined {
            text += &format!("quarantined: {range}\n");
        }
        for record in invalid {
            text += &format!("record {}: {}\n", record.seq, record.what);
        }
        if let Some(found) = found.as_ref().filter(|found| found.invalid_records.is_empty()) {
            text += &format!("sound: {} slots\n", found.slots.len());
        }
        output::print(&text)?;
    }
    let dir = dir.display();
    if let Some(first) = report.corruption.first() {
        return Err(Failure::corrupt(format!(
            "{dir} is corrupt, first in {} at byte {}; `esker log repair {dir}` quarantines the corruption, and \
             makes this log read-only",
            first.file.display(),
            first.offset
        )));
    }
    if !report.quarantined.is_empty() {
        return Err(Failure::corrupt(format!(
            "corrupt records of {dir} were quarantined: it is read-only, and its node has to rejoin under a \
             new number"
        )));
    }
    match invalid.first() {
        Some(record) => {
            Err(Failure::corrupt(format!("{dir}: record {}: {}", record.seq, record.what)))
        }
        None => Ok(()),
    }
}
