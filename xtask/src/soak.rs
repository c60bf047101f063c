//! Thousands of corrupted directories: the fuzz tests of the log and of the consensus log, in
//! release mode.

use anyhow::{Context, Result};

use crate::workspace;

/// The packages, by the name that `--only` takes.
const COMPONENTS: [(&str, &str); 2] = [("log", "esker-log"), ("consensus", "esker-consensus")];
const TEST: &str = "directory_fuzz";

/// How much is run.
#[derive(clap::Args)]
pub struct Options {
    /// The cases of each component
    #[arg(long, default_value_t = 20_000)]
    cases: u64,
    /// The first case; the next ones follow it. A failure names its own
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One component: log or consensus
    #[arg(long, value_parser = ["log", "consensus"])]
    only: Option<String>,
    /// Print what is known of the log, to examine a failure
    #[arg(long)]
    trace: bool,
}

/// Runs the soak; `false` if a case failed.
pub fn run(options: &Options) -> Result<bool> {
    let root = workspace::root()?;
    let mut passed = true;
    for (name, package) in COMPONENTS {
        if options.only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        println!("soak: {} cases of {name}, from {}", options.cases, options.seed);
        let mut cargo = workspace::cargo();
        cargo.current_dir(&root).args(["test", "--release", "-p", package, "--test", TEST, "--"]);
        cargo.args(["--nocapture", "corruption_is_reported"]);
        cargo.env("ESKER_SOAK", options.cases.to_string());
        cargo.env("ESKER_SEED", options.seed.to_string());
        if options.trace {
            cargo.env("ESKER_TRACE", "1");
        }
        passed &= cargo.status().context("cargo does not run")?.success();
    }
    Ok(passed)
}
