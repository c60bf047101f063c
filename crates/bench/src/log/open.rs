//! `log/open`: how long opening takes, after a kill and after a clean close.
//!
//! A child process builds the log. It is killed with SIGKILL while it appends; the records that it
//! reported as durable must be recovered. The cached pages of the segments are dropped before each
//! opening, as far as the system accepts the advice.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use esker_log::{Log, Options, PriorShutdown};
use serde_json::{Value, json};

use crate::log::log_arguments::{After, LogBenchArguments};
use crate::machine::floor::Floor;
use crate::measure::figure::{Figure, Shape, Verdict};
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, ResourceUse, Snapshot};
use crate::page_cache::drop_cached_pages;
use crate::records::payload::mix;
use crate::records::readback;
use crate::workdir::Workdir;
use esker_command::exit::{Failure, Outcome};
use esker_command::quantity;

pub const DEFAULT_LOG_BYTES: u64 = 10_000_000_000;
/// Measurements of each opening.
const KILL_ROUNDS: usize = 3;
const CLOSE_ROUNDS: usize = 5;
/// Bytes that the builder appends before each further kill.
const APPENDED_BYTES: u64 = 1 << 20;

/// Builds, kills, opens, reads back, prints.
pub fn run(arguments: &LogBenchArguments) -> Outcome {
    let workdir = Workdir::make(arguments.dir.as_deref(), arguments.keep)?;
    let mut opening = Opening {
        arguments,
        options: arguments.options(),
        floor: Floor::prepare(&workdir.floor())?,
        dir: &workdir.log(),
        bytes: arguments.bytes.unwrap_or(DEFAULT_LOG_BYTES),
        durable: 0,
    };
    opening.floor.sample()?;
    let is_wanted = |after| arguments.after.is_none_or(|only| only == after);

    let first = if is_wanted(After::Kill) { After::Kill } else { After::Close };
    opening.build(opening.bytes, first)?;
    let mut measured = Vec::new();
    if first == After::Kill {
        measured.push((After::Kill, opening.after_kills()?));
        opening.floor.sample()?;
    }
    if is_wanted(After::Close) {
        measured.push((After::Close, opening.after_closes()?));
    }
    opening.floor.sample()?;

    let compared = readback::compare(opening.dir, &opening.options, &arguments.recipe(), 1)?;
    if compared.last < opening.durable {
        return Err(Failure::corrupt("durable records are missing after the kill"));
    }
    for (after, openings) in measured.iter().rev() {
        opening.figure(*after, openings).print(arguments.json, Shape::Opening)?;
    }
    Ok(())
}

struct Opening<'a> {
    arguments: &'a LogBenchArguments,
    options: Options,
    floor: Floor,
    dir: &'a Path,
    bytes: u64,
    /// The last record that was reported as durable.
    durable: u64,
}

/// Openings of one kind.
struct Openings {
    latencies: Latencies,
    time: Duration,
    used: ResourceUse,
    segments: usize,
    disk_bytes: u64,
    direct: bool,
    dsync: bool,
    /// Whether the cached pages of the segments were dropped before each opening.
    cold: bool,
}

impl Opening<'_> {
    fn after_kills(&mut self) -> Outcome<Openings> {
        let mut openings = Openings::none();
        for round in 0..KILL_ROUNDS {
            if round > 0 {
                self.build(APPENDED_BYTES, After::Kill)?;
            }
            let log = openings.time(self.dir, &self.options, PriorShutdown::Unclean)?;
            if log.durable().0 < self.durable {
                return Err(Failure::corrupt("durable records are missing after the kill"));
            }
            log.close().map_err(|error| Failure::from_log(&error.into(), self.dir))?;
        }
        Ok(openings)
    }

    fn after_closes(&self) -> Outcome<Openings> {
        let mut openings = Openings::none();
        for _ in 0..CLOSE_ROUNDS {
            let log = openings.time(self.dir, &self.options, PriorShutdown::Clean)?;
            log.close().map_err(|error| Failure::from_log(&error.into(), self.dir))?;
        }
        Ok(openings)
    }

    /// Runs the child process that appends this many bytes and then ends as `then` says.
    fn build(&mut self, bytes: u64, then: After) -> Outcome {
        let failed =
            |what: &str| Failure::failed(format!("the process that builds the log {what}"));
        let mut child = self.start(bytes, then)?;
        // The builder exits when this is closed.
        let _stdin = child.stdin.take();
        let Some(out) = child.stdout.take() else { return Err(failed("has no standard output")) };
        let mut line = String::new();
        let read = BufReader::new(out).read_line(&mut line);
        let Some(count) = read.ok().and_then(|_| line.trim().parse().ok()) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed("exited early"));
        };
        self.durable = count;
        if then == After::Kill {
            let pause = 2 + mix(count) % 20;
            std::thread::sleep(Duration::from_millis(pause));
            child.kill().map_err(|error| Failure::from_io("kill the builder", &error))?;
        }
        let status =
            child.wait().map_err(|error| Failure::from_io("wait for the builder", &error))?;
        if then == After::Close && !status.success() {
            return Err(failed("failed"));
        }
        Ok(())
    }

    fn start(&self, bytes: u64, then: After) -> Outcome<Child> {
        let failure = |error: &std::io::Error| Failure::from_io("start the builder", error);
        let program = std::env::current_exe().map_err(|error| failure(&error))?;
        let writing = &self.arguments.writing;
        let (least, most) = (self.arguments.size.start(), self.arguments.size.end());
        let mut command = Command::new(program);
        command
            .arg("log-build")
            .arg(self.dir)
            .arg(format!("--bytes={bytes}"))
            .arg(format!("--size={least}..{most}"))
            .arg(format!("--seed={}", self.arguments.seed))
            .arg(format!("--then={}", then.name()))
            .arg(format!("--policy={}", quantity::policy_name(writing.policy)))
            .arg(format!("--segment-size={}", self.options.segment_size))
            .arg(format!("--record-limit={}", self.options.record_limit))
            .arg(format!("--direct={}", writing.io.direct.name()))
            .arg(format!("--dsync={}", writing.io.dsync.unwrap_or_default().name()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command.spawn().map_err(|error| failure(&error))
    }

    fn figure(&self, after: After, openings: &Openings) -> Figure {
        let mut params = self.arguments.params(&self.options);
        let mut put = |name: &str, value: Value| {
            params.insert(name.into(), value);
        };
        put("after", json!(after.name()));
        put("bytes", json!(self.bytes));
        put("disk_bytes", json!(openings.disk_bytes));
        put("segments", json!(openings.segments));
        put("disk", json!("std"));
        put("direct", json!(openings.direct));
        put("dsync", json!(openings.dsync));
        put(
            "page_cache",
            json!(if openings.cold {
                "segments dropped by advice, the system's other caches kept"
            } else {
                "kept"
            }),
        );
        let ops = openings.latencies.count();
        Figure {
            params: Value::Object(params),
            latencies: openings.latencies.clone(),
            used: openings.used,
            floor: self.floor.medians(),
            verdict: Verdict::Right,
            open_ms: Some(openings.latencies.quantile_us(0.5) / 1e3),
            ..Figure::new("log/open", ops, self.bytes * ops, openings.time)
        }
    }
}

impl Openings {
    fn none() -> Self {
        Self {
            latencies: Latencies::new(),
            time: Duration::ZERO,
            used: ResourceUse::default(),
            segments: 0,
            disk_bytes: 0,
            direct: false,
            dsync: false,
            cold: true,
        }
    }

    /// Opens the log and records how long it took.
    fn time(&mut self, dir: &Path, options: &Options, expected: PriorShutdown) -> Outcome<Log> {
        self.cold &= drop_cached_pages(dir);
        resources::reset_peak();
        let (begin, snapshot) = (Instant::now(), Snapshot::now());
        let opened = Log::builder(dir).options(options.clone()).open();
        let time = begin.elapsed();
        let used = ResourceUse { resident: resources::peak(), ..snapshot.used() };
        let log = opened.map_err(|error| Failure::from_log(&error.into(), dir))?;
        if log.storage().recovery().prior_shutdown != expected {
            return Err(Failure::failed(format!(
                "the shutdown before this opening was {:?} instead of {expected:?}",
                log.storage().recovery().prior_shutdown
            )));
        }
        let (metadata, stats) = (log.storage().metadata(), log.stats());
        self.latencies.add(time);
        self.time += time;
        self.used = self.used.and(used);
        self.segments = metadata.segments;
        self.disk_bytes = metadata.disk_bytes;
        self.direct = stats.direct;
        self.dsync = stats.dsync;
        Ok(log)
    }
}
