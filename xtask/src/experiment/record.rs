//! Recording the results: the same command for every machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::file_systems::{self, FILE_SYSTEMS};
use crate::workspace;

/// A run is repeated if the disk changed by more than this factor between before and after.
const STEADY: f64 = 1.3;
const ATTEMPTS_MAX: usize = 2;

const EXPERIMENT: &str = "always,batch:100,batch:1000,periodic:10,periodic:100";
const ALL: &str =
    "always,batch:10,batch:100,batch:1000,batch:10000,periodic:1,periodic:10,periodic:100";

/// A set of results, and the flags that make it.
const SETS: [(&str, &[&str]); 8] = [
    ("128", &["--blocking", "--policy", ALL]),
    ("4096", &["--blocking", "--policy", EXPERIMENT, "--size", "4096", "--keys", "100000"]),
    ("sata", &["--blocking", "--policy", EXPERIMENT, "--slow-disk", "sata"]),
    ("hdd", &["--blocking", "--policy", EXPERIMENT, "--slow-disk", "hdd"]),
    ("group", &["--writers", "1"]),
    ("group", &["--writers", "8"]),
    ("group", &["--writers", "64"]),
    ("debug", &["--blocking", "--policy", "batch:1000", "--seconds", "3"]),
];

/// The flags of a set that has the name of a file system. The stores fit into its image.
const ON_FILE_SYSTEM: &[&str] =
    &["--blocking", "--policy", "always,batch:100,batch:1000,periodic:10", "--keys", "100000"];

#[derive(Args, Debug)]
pub struct Options {
    /// Record the results first; takes some ten minutes on an idle machine
    #[arg(long)]
    pub run: bool,
    /// A release build of the command, instead of building one
    #[arg(long, value_name = "PATH")]
    esker: Option<PathBuf>,
    /// A debug build of the command, instead of building one
    #[arg(long, value_name = "PATH")]
    esker_debug: Option<PathBuf>,
    /// A directory on the disk to measure
    #[arg(long, value_name = "DIR", default_value = "target/experiment")]
    dir: PathBuf,
    /// With --run: record these sets again and keep the others
    #[arg(long, value_name = "SET", requires = "run")]
    only: Vec<String>,
}

/// Records the sets into the file `results`.
pub fn run(root: &Path, results: &str, options: &Options) -> Result<()> {
    let release = built(root, options.esker.as_ref(), true)?;
    let debug = built(root, options.esker_debug.as_ref(), false)?;
    let path = root.join(results);
    let set_of = |line: &str| {
        let line = serde_json::from_str::<Value>(line).ok()?;
        line["set"].as_str().map(str::to_owned)
    };
    let kept = |line: &&str| {
        let set = set_of(line);
        !options.only.is_empty() && set.is_some_and(|set| !options.only.contains(&set))
    };
    let before = fs::read_to_string(&path).unwrap_or_default();
    let mut lines: Vec<String> = before.lines().filter(kept).map(str::to_owned).collect();
    let dir = root.join(&options.dir);
    let wanted = |set: &str| options.only.is_empty() || options.only.iter().any(|only| only == set);
    for (set, flags) in SETS.into_iter().filter(|(set, _)| wanted(set)) {
        let esker = if set == "debug" { &debug } else { &release };
        lines.extend(measure(esker, set, flags, &dir)?);
    }
    for set in FILE_SYSTEMS.into_iter().filter(|set| wanted(set)) {
        match file_systems::within(set, &dir, |dir| measure(&release, set, ON_FILE_SYSTEM, dir)) {
            Ok(measured) => lines.extend(measured),
            // It needs root, and the tools of the file system.
            Err(error) => {
                eprintln!("experiment: skipped {set}, its earlier figures stay: {error:#}");
                let earlier = before.lines().filter(|line| set_of(line).as_deref() == Some(set));
                lines.extend(earlier.map(str::to_owned));
            }
        }
    }
    lines.push(String::new());
    fs::write(path, lines.join("\n"))?;
    Ok(())
}

fn built(root: &Path, given: Option<&PathBuf>, release: bool) -> Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.clone());
    }
    let mut build = workspace::cargo();
    build.current_dir(root).args(["build", "-p", "esker-bench"]);
    build.args(release.then_some(["--profile", "dist"]).into_iter().flatten());
    ensure!(build.status()?.success(), "esker-bench does not build");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join(if release { "dist" } else { "debug" }).join("esker-bench"))
}

/// Runs a set until the disk was steady, and at most so many times. Returns the lines of the
/// steadiest run, with the number of runs and how much the disk changed.
fn measure(esker: &Path, set: &str, flags: &[&str], dir: &Path) -> Result<Vec<String>> {
    let mut best: Option<(f64, Vec<Value>)> = None;
    let mut attempts = 0;
    while attempts < ATTEMPTS_MAX && best.as_ref().is_none_or(|(change, _)| *change > STEADY) {
        attempts += 1;
        eprintln!("experiment: {set} {}", flags.join(" "));
        let mut command = Command::new(esker);
        command.args(["kv", "--json", "--dir"]).arg(dir).args(flags);
        let output = command.output().with_context(|| format!("run {}", esker.display()))?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8(output.stdout)?;
        let figures: Vec<Value> =
            text.lines().map(serde_json::from_str).collect::<serde_json::Result<_>>()?;
        let change = figures.iter().map(change_of_floor).fold(1.0, f64::max);
        if best.as_ref().is_none_or(|(least, _)| change < *least) {
            best = Some((change, figures));
        }
    }
    let (change, figures) = best.context("no run")?;
    let lines = figures.into_iter().map(|mut figure| {
        figure["set"] = json!(set);
        figure["attempts"] = json!(attempts);
        figure["floor_change"] = json!((change * 100.0).round() / 100.0);
        figure.to_string()
    });
    Ok(lines.collect())
}

/// The slowest sync of the floor's samples, as a multiple of the fastest.
fn change_of_floor(figure: &Value) -> f64 {
    let samples = figure["floor_sync_us"].as_array();
    let samples = samples.into_iter().flatten().filter_map(Value::as_f64);
    let (least, most) =
        samples.fold((f64::MAX, 0.0), |(least, most), us| (us.min(least), us.max(most)));
    if most > 0.0 { most / least.max(0.01) } else { f64::MAX }
}
