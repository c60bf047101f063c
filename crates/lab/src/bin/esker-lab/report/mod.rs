//! `esker-lab report`: what was measured and crashed, as one HTML page.

mod charts;
mod page;

use std::fs;
use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use esker_command::exit::{Failure, Outcome};
use esker_command::output;

const EXAMPLES: &str = "\
Examples:
  esker-bench kv --blocking --json \\
    --policy always,batch:100,batch:1000,periodic:10,periodic:100 \\
    > bench.jsonl
  esker-lab power --each --json > power.jsonl
  esker-lab kill --each --json > kill.jsonl
  esker-lab report bench.jsonl power.jsonl kill.jsonl > report.html

The report has what the files have: throughput against what a crash may lose, latencies, the model beside the \
measurement, and what each crash left. It loads nothing from anywhere.";

/// Arguments of `esker-lab report`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportArguments {
    /// Files of JSON lines, as `--json` of these commands prints them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Runs `esker-lab report`.
pub fn run(arguments: &ReportArguments) -> Outcome {
    let mut lines = Vec::new();
    for path in &arguments.files {
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::from_io(format_args!("read {}", path.display()), &error))?;
        let no_blank = |(_, line): &(usize, &str)| !line.trim().is_empty();
        for (n, line) in text.lines().enumerate().filter(no_blank) {
            let read = serde_json::from_str(line).ok().filter(is_whole);
            lines.push(read.ok_or_else(|| {
                let (path, n) = (path.display(), n + 1);
                Failure::failed(format!(
                    "{path}:{n}: this is no line of `esker-bench kv --json` or `esker-lab --json`"
                ))
            })?);
        }
    }
    if lines.is_empty() {
        return Err(Failure::failed("the files are empty".to_owned()));
    }
    output::print(&page::html(&lines))
}

/// Numbers of what a setting of the lab came to.
const COUNTS: [&str; 5] = ["runs", "cuts", "violations", "loss_seen", "max_lost"];

/// Whether a line has what the report shows of it.
fn is_whole(line: &Value) -> bool {
    let counts = |values: &Value| {
        let values = values.as_array();
        values.is_some_and(|values| values.len() == 4 && values.iter().all(Value::is_u64))
    };
    if line["face"].is_string() {
        let named = ["instrument", "policy"].iter().all(|key| line[*key].is_string());
        let counted = COUNTS.iter().all(|key| line[*key].is_u64());
        let each = line["each"].as_array().is_none_or(|each| each.iter().all(counts));
        named && counted && each && line["avg_durable"].is_f64() && line["avg_recovered"].is_f64()
    } else {
        line["bench"].is_string()
    }
}
