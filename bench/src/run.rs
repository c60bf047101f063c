//! The run: every system at every work, in turn, several times, with the floor in between.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use esker_bench::measure::floor_figures::FloorFigures;

use crate::circumstances;
use crate::floor::{Floor, Sampler};
use crate::job::{Job, Set};
use crate::job_result::JobResult;
use crate::programs::{self, GoCommands};
use crate::report::{self, Row};
use crate::run_dir::RunDir;
use crate::systems::{Home, System, systems};
use crate::work::{Scale, Workload, works};
use crate::{chart, child};

/// The failures after which a system is not asked to do the same again.
const FAILURES_MAX: usize = 2;

const KEPT: &str = " The works were not all run in one go; each has all its systems, in turn, from one run, \
                    and this page describes the last run.";

/// The choice of systems and works.
#[derive(Debug, Clone, Args)]
pub struct Choice {
    /// The component of Esker that is compared: the log with other logs, the consensus log with
    /// logs of entries and a store of keys, or the key-value store with others
    #[arg(long, default_value = "log")]
    set: Set,
    /// Length of the timed part of a work; where all write the same bytes, how many
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How often everything is run; the run with the median rate counts
    #[arg(long, visible_alias = "repeats", default_value_t = 5)]
    runs: u32,
    /// Bytes of the work `stream`, in 10^9
    #[arg(long, default_value_t = 1.0)]
    gb: f64,
    /// Keys of the works of the key-value store that load them and read them
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Only this system; may be given several times
    #[arg(long, value_name = "SYSTEM")]
    only: Vec<String>,
    /// Only this work; may be given several times
    #[arg(long, value_name = "NAME")]
    work: Vec<String>,
    /// A directory on the disk to measure; it must not be there. Without it, one in ./target
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Keep what the results have of works that are not run now
    #[arg(long)]
    keep: bool,
    /// Where the results go
    #[arg(long, default_value_os_t = programs::home().join("results"))]
    out: PathBuf,
    /// Seconds after which a run of one system is killed; without it, what its work should need
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
}

/// The runs of one system: a result for each work of the job, or the reason why there is none.
type Runs = Vec<Result<Vec<JobResult>, String>>;

/// The results of one work, and of those that its job does, too.
struct Results {
    work: &'static Workload,
    systems: Vec<(&'static System, Runs)>,
    floors: Vec<FloorFigures>,
}

impl Results {
    /// The works that the job does.
    fn works(&self) -> impl Iterator<Item = &'static Workload> {
        let name = self.work.name;
        works(self.work.set).filter(move |work| work.within.unwrap_or(work.name) == name)
    }

    /// The results of a system's runs for one of the works; none if it does not do it.
    fn runs_of(&self, work: &Workload, runs: &Runs) -> Option<Vec<Result<JobResult, String>>> {
        let mut all = Vec::new();
        for run in runs {
            match run {
                Ok(results) => all.extend(results.iter().find_map(|result| {
                    let name = result.work.as_deref().unwrap_or(self.work.name);
                    (name == work.name).then(|| Ok(result.clone()))
                })),
                Err(reason) => all.push(Err(reason.clone())),
            }
        }
        (!all.is_empty()).then_some(all)
    }
}

/// Runs what `choice` selects, and writes and prints the results.
pub fn run(choice: &Choice) -> Result<()> {
    let mut all = plan(choice)?;
    let go = programs::go(all.iter().flat_map(|results| {
        results.systems.iter().filter_map(|(system, _)| match system.home {
            Home::Go(name) => Some(name),
            Home::Here | Home::Missing(_) => None,
        })
    }))?;
    let dir = RunDir::create(choice.dir.as_deref())?;
    let mut sampler = Sampler::new(&dir.0.join("floor"))?;
    let begin = Instant::now();
    for round in 0..choice.runs.max(1) {
        for results in &mut all {
            eprintln!("run {} of {}: {}", round + 1, choice.runs.max(1), results.work.name);
            sample(&mut sampler, results);
            // Another system begins each round, so that none always runs after the same one.
            let first = round as usize % results.systems.len();
            for index in 0..results.systems.len() {
                let index = (first + index) % results.systems.len();
                let (system, runs) = &mut results.systems[index];
                one(choice, &dir.0, &go, results.work, system, runs)?;
            }
            sample(&mut sampler, results);
        }
    }
    let took = begin.elapsed();
    report(choice, &all, &circumstances::describe(&dir.0, choice.runs, choice.seconds, took))
}

fn plan(choice: &Choice) -> Result<Vec<Results>> {
    let wanted = |names: &[String], name: &str| names.is_empty() || names.iter().any(|n| n == name);
    let known = |names: &[String], all: Vec<&str>| -> Result<()> {
        for name in names {
            ensure!(all.contains(&name.as_str()), "no {name}; there are {}", all.join(", "));
        }
        Ok(())
    };
    known(&choice.work, works(choice.set).map(|work| work.name).collect())?;
    known(&choice.only, systems(choice.set).map(|system| system.name).collect())?;
    ensure!(
        choice.seconds > 0.0 && choice.gb > 0.0 && choice.keys > 0,
        "--seconds, --gb and --keys must be above 0"
    );
    let mut all = Vec::new();
    // A work that is done within another one brings all that the job does.
    let jobs: BTreeSet<&str> = works(choice.set)
        .filter(|work| wanted(&choice.work, work.name))
        .map(|work| work.within.unwrap_or(work.name))
        .collect();
    for work in works(choice.set).filter(|work| jobs.contains(work.name)) {
        let systems: Vec<_> = systems(choice.set)
            .filter(|system| system.takes_part(work) && wanted(&choice.only, system.name))
            .map(|system| (system, Vec::new()))
            .collect();
        if !systems.is_empty() {
            all.push(Results { work, systems, floors: Vec::new() });
        }
    }
    ensure!(!all.is_empty(), "none of the systems does any of the works");
    Ok(all)
}

fn sample(sampler: &mut Sampler, results: &mut Results) {
    match sampler.sample() {
        Ok(floor) => results.floors.push(floor),
        Err(reason) => eprintln!("the floor was not sampled: {reason:#}"),
    }
}

fn one(
    choice: &Choice,
    dir: &Path,
    go: &GoCommands,
    work: &Workload,
    system: &System,
    runs: &mut Runs,
) -> Result<()> {
    let scale = Scale { seconds: choice.seconds, gigabytes: choice.gb, keys: choice.keys };
    let job = work.job(system.name, scale, &dir.join("job"));
    let program = match system.home {
        Home::Here => std::env::current_exe().map_err(|error| error.to_string()),
        Home::Go(name) => go.get(name).cloned().unwrap_or_else(|| Err("was not built".into())),
        Home::Missing(reason) => Err(reason.into()),
    };
    let result = match program {
        Err(reason) if runs.is_empty() => Err(reason),
        Err(_) => return Ok(()),
        Ok(_) if runs.iter().filter(|run| run.is_err()).count() >= FAILURES_MAX => return Ok(()),
        Ok(program) => {
            let mut command = Command::new(program);
            // The reason of a failure is what counts, and only its end is kept.
            command.env("RUST_BACKTRACE", "0");
            if matches!(system.home, Home::Here) {
                command.arg("child");
            }
            let limit = choice.limit.map_or_else(|| limit(&job), Duration::from_secs);
            in_clean_dir(&job, || child::run(command.args(job.flags()), limit))?
        }
    };
    match &result {
        Ok(results) => {
            for done in results {
                eprintln!(
                    "  {:20} {:>11} {} {:>8} MB/s  p50 {} µs  {}",
                    system.name,
                    report::grouped(done.ops as f64 / done.seconds),
                    work.set.unit(),
                    report::grouped(done.bytes as f64 / done.seconds / 1e6),
                    report::grouped(done.p50_us),
                    done.work.as_deref().unwrap_or_default(),
                );
            }
        }
        Err(reason) => eprintln!("  {:20} {reason}", system.name),
    }
    runs.push(result);
    Ok(())
}

/// Generous: a slow peer is to be measured, and only one that hangs is to be killed.
fn limit(job: &Job) -> Duration {
    let gigabytes = job.count as f64 * f64::from(job.writers) * f64::from(job.most) / 1e9;
    Duration::from_secs_f64(60.0 + 20.0 * job.seconds + 60.0 * gigabytes)
}

/// Runs `work` in a directory of its own, then removes the files and waits for the writes of the
/// system, so that nothing of one run is left when the next begins.
fn in_clean_dir<T>(job: &Job, work: impl FnOnce() -> T) -> Result<T> {
    std::fs::create_dir_all(&job.dir).with_context(|| format!("make {}", job.dir.display()))?;
    let outcome = work();
    let parent = job.dir.parent().unwrap_or(&job.dir);
    std::fs::remove_dir_all(&job.dir).with_context(|| format!("remove {}", job.dir.display()))?;
    rustix::fs::syncfs(File::open(parent)?).context("sync the file system")?;
    Ok(outcome)
}

fn report(choice: &Choice, all: &[Results], circumstances: &str) -> Result<()> {
    let rows: Vec<Row> = all
        .iter()
        .flat_map(|results| {
            let floor = Floor::median(&results.floors);
            results.works().flat_map(move |work| {
                results.systems.iter().filter_map(move |(system, runs)| {
                    Some(Row::from_runs(system, work, &results.runs_of(work, runs)?, floor))
                })
            })
        })
        .collect();
    std::fs::create_dir_all(&choice.out)?;
    let file = |kind: &str| choice.out.join(format!("{}.{kind}", choice.set.stem()));
    let old: Vec<Row> = match std::fs::read(file("json")) {
        Ok(bytes) if choice.keep => serde_json::from_slice(&bytes).context("the rows to keep")?,
        Err(error) if choice.keep && error.kind() != ErrorKind::NotFound => {
            return Err(error.into());
        }
        _ => Vec::new(),
    };
    let (new, rows) = (rows.len(), report::together(choice.set, rows, old));
    let kept = if rows.len() > new { KEPT } else { "" };
    let text = report::markdown(choice.set, &rows, &format!("{circumstances}{kept}"));
    std::fs::write(file("json"), serde_json::to_string_pretty(&rows)? + "\n")?;
    std::fs::write(file("md"), &text)?;
    chart::draw_all(choice.set, &rows, &choice.out)?;
    println!("{text}");
    eprintln!("written to {}", choice.out.display());
    Ok(())
}
