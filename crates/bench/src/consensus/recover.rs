//! `consensus/recover`: how long opening takes, after a clean close and after a kill.
//!
//! A child process builds the log. It is killed with SIGKILL while it writes promises, so that the
//! log has exactly the requested entries, all of which must be recovered. Opening repairs the state
//! after a kill; each opening after a kill therefore uses a copy.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use esker_consensus::{ConsensusLog, Mode};
use esker_log::PriorShutdown;
use serde_json::{Map, Value, json};

use super::compare::compare;
use super::consensus_arguments::{ConsensusBenchArguments, insert_disk};
use super::timed::Bench;
use crate::log::log_arguments::After;
use crate::measure::figure::{Figure, Shape, Verdict};
use crate::measure::floor_figures::FloorFigures;
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, ResourceUse, Snapshot};
use crate::page_cache::drop_cached_pages;
use crate::workdir::Workdir;
use esker_command::exit::{Failure, Outcome};

/// Measurements of each opening.
const OPENING_ROUNDS: u64 = 3;

/// Builds, kills or closes, opens, compares, prints.
pub fn run(bench: &mut Bench<'_>, workdir: &Workdir) -> Outcome {
    for after in [After::Close, After::Kill] {
        let built = workdir.log().join(format!("recover-{}", after.name()));
        build(bench.arguments, &built, after)?;
        let mut openings = Openings::new(bench.arguments, after);
        for round in 0..OPENING_ROUNDS {
            let dir = match after {
                After::Close => built.clone(),
                After::Kill => copy(&built)?,
            };
            openings.add(&dir, round + 1 == OPENING_ROUNDS)?;
            if after == After::Kill {
                remove(&dir)?;
            }
        }
        bench.floor.sample()?;
        let figure = openings.figure(bench.floor.medians());
        bench.bar.suspend(|| figure.print(bench.arguments.json, Shape::Opening))?;
        if !bench.arguments.keep {
            remove(&built)?;
        }
    }
    Ok(())
}

/// The openings of a log after a clean close, or after a kill.
struct Openings<'a> {
    arguments: &'a ConsensusBenchArguments,
    after: After,
    params: Map<String, Value>,
    latencies: Latencies,
    time: Duration,
    used: ResourceUse,
    /// Whether no segment was in the page cache.
    cold: bool,
    replayed: Vec<u64>,
}

impl<'a> Openings<'a> {
    fn new(arguments: &'a ConsensusBenchArguments, after: After) -> Self {
        Self {
            arguments,
            after,
            params: arguments.params(&arguments.options(Mode::Volatile, true)),
            latencies: Latencies::new(),
            time: Duration::ZERO,
            used: ResourceUse::default(),
            cold: true,
            replayed: Vec::new(),
        }
    }

    /// Opens the log, checks what it recovered, and compares all values if asked to.
    fn add(&mut self, dir: &Path, compares: bool) -> Outcome {
        self.cold &= drop_cached_pages(dir);
        resources::reset_peak();
        let (begin, snapshot) = (Instant::now(), Snapshot::now());
        let log = ConsensusLog::builder(dir)
            .options(self.arguments.options(Mode::Volatile, true))
            .open()
            .map_err(|error| Failure::from_consensus(error, dir))?;
        let took = begin.elapsed();
        self.used = self.used.and(ResourceUse { resident: resources::peak(), ..snapshot.used() });
        self.latencies.add(took);
        self.time += took;
        let stats = log.stats();
        self.replayed.push(stats.since_checkpoint);
        insert_disk(&mut self.params, &stats.log_stats);
        self.params.insert("disk_bytes".into(), json!(stats.log.disk_bytes));
        let recovered = self.check(&log)?;
        if compares && compare(&log, self.arguments.size as usize, dir)? != recovered {
            return Err(Failure::failed("fewer values were read back than were committed"));
        }
        log.close().map_err(|error| Failure::from_consensus(error, dir))
    }

    /// Checks that the log has every durable commit. Returns how many it has.
    fn check(&self, log: &ConsensusLog) -> Outcome<u64> {
        let expected = match self.after {
            After::Close => PriorShutdown::Clean,
            After::Kill => PriorShutdown::Unclean,
        };
        let found = log.maintenance().recovery().prior_shutdown;
        if found != expected {
            return Err(Failure::failed(format!(
                "the shutdown before this opening was {found:?} instead of {expected:?}"
            )));
        }
        let recovered = log.stats().committed.map_or(0, |range| range.count);
        if recovered != self.arguments.entries {
            return Err(Failure::corrupt(format!(
                "recovered {recovered} of {} durable commits after the {}",
                self.arguments.entries,
                self.after.name()
            )));
        }
        Ok(recovered)
    }

    fn figure(self, floor: FloorFigures) -> Figure {
        let Self { arguments, after, mut params, latencies, time, used, cold, replayed } = self;
        let mut put = |name: &str, value: Value| {
            params.insert(name.into(), value);
        };
        put("after", json!(after.name()));
        put("entries", json!(arguments.entries));
        put("openings", json!(OPENING_ROUNDS));
        put("records_replayed", json!(replayed));
        put("threads", json!(1));
        put("page_cache", json!(if cold { "segments dropped by advice" } else { "kept" }));
        put("ops", json!("entries recovered by each opening"));
        let entries = OPENING_ROUNDS * arguments.entries;
        Figure {
            params: Value::Object(params),
            open_ms: Some(latencies.quantile_us(0.5) / 1e3),
            latencies,
            used,
            floor,
            verdict: Verdict::Right,
            ..Figure::new("consensus/recover", entries, entries * u64::from(arguments.size), time)
        }
    }
}

fn remove(dir: &Path) -> Outcome {
    let failure = |error| Failure::from_io(format_args!("remove {}", dir.display()), &error);
    std::fs::remove_dir_all(dir).map_err(failure)
}

/// Copies the log to a directory next to it.
fn copy(built: &Path) -> Outcome<PathBuf> {
    let dir = built.with_extension("copy");
    let failure = |error| Failure::from_io(format_args!("copy {}", built.display()), &error);
    std::fs::create_dir(&dir).map_err(failure)?;
    for entry in std::fs::read_dir(built).map_err(failure)? {
        let entry = entry.map_err(failure)?;
        std::fs::copy(entry.path(), dir.join(entry.file_name())).map_err(failure)?;
        // Dirty pages cannot be dropped from the page cache.
        File::open(dir.join(entry.file_name()))
            .and_then(|file| file.sync_all())
            .map_err(failure)?;
    }
    Ok(dir)
}

/// Runs the child process that commits the requested entries durably and then ends as `then` says.
fn build(arguments: &ConsensusBenchArguments, dir: &Path, then: After) -> Outcome {
    let failed = |what: &str| Failure::failed(format!("the process that builds the log {what}"));
    let of_io = |error: &std::io::Error| Failure::from_io("start the builder", error);
    let program = std::env::current_exe().map_err(|error| of_io(&error))?;
    let io = &arguments.io;
    let mut child = Command::new(program)
        .arg("consensus-build")
        .arg(dir)
        .arg(format!("--entries={}", arguments.entries))
        .arg(format!("--size={}", arguments.size))
        .arg(format!("--then={}", then.name()))
        .arg(format!("--segment-size={}", io.options().segment_size))
        .arg(format!("--direct={}", io.direct.name()))
        .arg(format!("--dsync={}", io.dsync.unwrap_or_default().name()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| of_io(&error))?;
    // The builder exits when this is closed.
    let _stdin = child.stdin.take();
    let Some(out) = child.stdout.take() else { return Err(failed("has no standard output")) };
    let mut line = String::new();
    let read = BufReader::new(out).read_line(&mut line);
    if read.ok().and_then(|_| line.trim().parse().ok()) != Some(arguments.entries) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed("exited early"));
    }
    if then == After::Kill {
        std::thread::sleep(Duration::from_millis(10));
        child.kill().map_err(|error| Failure::from_io("kill the builder", &error))?;
    }
    let status = child.wait().map_err(|error| Failure::from_io("wait for the builder", &error))?;
    if then == After::Close && !status.success() {
        return Err(failed("failed"));
    }
    Ok(())
}
