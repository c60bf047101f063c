//! `esker log stat`: a summary of a log, without taking its lock and without reading all of it.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use esker_log::ReadOnlyLog;
use serde_json::json;

use crate::exit::{Failure, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  esker log stat ./esker-data
  esker log stat ./esker-data --json | jq .durable

It runs beside a writer. It reads the header and footer of every segment, not every record: for that, \
use `esker log verify`. Exit status 3 when it found corruption.";

/// Arguments of `esker log stat`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct StatArguments {
    /// The log's directory
    dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the summary.
pub fn run(arguments: &StatArguments) -> Outcome {
    let dir = &arguments.dir;
    let reader = ReadOnlyLog::open(dir).map_err(|e| Failure::of_log(&e, dir))?;
    let metadata = reader.metadata();
    let (records, bytes) = reader.stored();
    let corruption = reader.corruption();
    if arguments.json {
        output::print_json(&json!({
            "dir": dir.to_string_lossy(),
            "id": metadata.id.to_string(),
            "session": metadata.session,
            "oldest": reader.oldest().0,
            "durable": reader.durable().0,
            "position": reader.position().0,
            "records": records,
            "segments": metadata.segments,
            "bytes": bytes,
            "closed_cleanly": reader.is_closed_cleanly(),
            "unrecovered_bytes": reader.unrecovered_bytes(),
            "damage": corruption.as_ref().map(super::verify::corruption_json),
        }))?;
    } else {
        let mut text = String::new();
        let mut row = |name: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(text, "{name:<12} {value}");
        };
        row("directory", &dir.display());
        row("log", &metadata.id);
        row("session", &metadata.session);
        row("records", &records);
        row("oldest", &reader.oldest());
        match corruption {
            None => row("durable", &reader.durable()),
            Some(_) => row(
                "durable",
                &format_args!("{} or more: reading stopped at the corruption", reader.durable()),
            ),
        }
        row("position", &reader.position());
        row("segments", &metadata.segments);
        row("bytes", &bytes);
        let shutdown = match (reader.is_closed_cleanly(), reader.unrecovered_bytes()) {
            (true, _) => "closed cleanly".to_owned(),
            (false, 0) => "open, or not closed".to_owned(),
            (false, more) => format!(
                "open, or not closed; {more} bytes after the durable watermark, not yet recovered"
            ),
        };
        row("shutdown", &shutdown);
        output::print(&text)?;
    }
    match corruption {
        Some(corruption) => Err(Failure::of_log(&esker_log::Error::Corrupted(corruption), dir)),
        None => Ok(()),
    }
}
