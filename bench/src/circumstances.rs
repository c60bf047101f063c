//! Where and how a run was made, for those who read its tables.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::child;
use crate::programs;

/// A few sentences.
pub fn describe(dir: &Path, runs: u32, seconds: f64, took: Duration) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("a processor without a name", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let mounts = read("/proc/mounts");
    let system = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(mount, _)| dir.starts_with(mount))
        .max_by_key(|(mount, _)| mount.len())
        .map_or("an unknown file system", |(_, kind)| kind);
    let mut git = Command::new("git");
    git.current_dir(programs::home()).args(["describe", "--always", "--dirty"]);
    let commit = child::output(&mut git, Duration::from_secs(10)).unwrap_or_default();
    format!(
        "Medians of {runs} runs of {seconds} s a work, all systems in turn in each run, {} minutes in \
         all, on {cores} cores ({model}), Linux {}, {system}. Esker at {}. Machines differ: compare \
         within a table, and measure your own work on your own machine.",
        took.as_secs().div_ceil(60),
        kernel.trim(),
        commit.trim(),
    )
}
