//! `esker crash report`: what was measured and crashed, as one HTML page.

mod charts;
mod page;

use std::fs;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use crate::exit::{Failure, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  esker kv bench --blocking --json --policy always,batch:100,batch:1000,periodic:10,periodic:100 > bench.jsonl
  esker crash power --each --json > power.jsonl
  esker crash kill --each --json > kill.jsonl
  esker crash report bench.jsonl power.jsonl kill.jsonl > report.html

The report has what the files have: throughput against what a crash may lose, latencies, the model beside the \
measurement, and what each crash left. It loads nothing from anywhere.";

/// Arguments of `esker crash report`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportArguments {
    /// Files of JSON lines, as `--json` of these commands prints them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Runs `esker crash report`.
pub fn run(arguments: &ReportArguments) -> Outcome {
    let mut lines = Vec::new();
    for path in &arguments.files {
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::of_io(format_args!("read {}", path.display()), &error))?;
        for (n, line) in text.lines().enumerate() {
            let line: Value = serde_json::from_str(line).map_err(|error| {
                Failure::failed(format!("{}:{}: {error}", path.display(), n + 1))
            })?;
            lines.push(line);
        }
    }
    let known = |line: &Value| line["bench"].is_string() || line["face"].is_string();
    if !lines.iter().any(known) {
        return Err(Failure::failed(
            "no line is of `esker kv bench --json` or `esker crash --json`".to_owned(),
        ));
    }
    output::print(&page::html(&lines))
}
