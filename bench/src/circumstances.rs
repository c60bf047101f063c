//! The machine and the options of a run, for the readers of its tables.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use esker_bench::machine::environment::Environment;

use crate::child;
use crate::programs;

/// A few sentences.
pub fn describe(dir: &Path, runs: u32, seconds: f64, took: Duration) -> String {
    let Environment { cpu, cores, file_system, kernel, .. } = Environment::describe(dir);
    let mut git = Command::new("git");
    git.current_dir(programs::home()).args(["describe", "--always", "--dirty"]);
    let commit = child::output(&mut git, Duration::from_secs(10)).unwrap_or_default();
    format!(
        "Medians of {runs} runs of {seconds} s a work, all systems in turn in each run, {} minutes in \
         all, on {cores} cores ({}), Linux {}, {}. Esker at {}. Machines differ: compare \
         within a table, and measure your own work on your own machine.",
        took.as_secs().div_ceil(60),
        cpu.as_deref().unwrap_or("a processor without a name"),
        kernel.as_deref().unwrap_or_default(),
        file_system.as_deref().unwrap_or("an unknown file system"),
        commit.trim(),
    )
}
