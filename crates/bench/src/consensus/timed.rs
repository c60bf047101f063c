//! Runs one work on its own log: opens the log, times the work on some threads, prints the figure.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use esker_consensus::{ConsensusLog, Error, Options};
use esker_log::LogStats;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};

use super::consensus_arguments::{ConsensusBenchArguments, insert_disk};
use crate::load::threads;
use crate::machine::floor::Floor;
use crate::measure::call_clock::{CallClock, TIMED_EVERY};
use crate::measure::figure::{Figure, Shape, Verdict};
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, ResourceUse};
use esker_command::exit::{Failure, Outcome};

/// State that all works share.
pub struct Bench<'a> {
    pub arguments: &'a ConsensusBenchArguments,
    pub dir: PathBuf,
    pub floor: Floor,
    /// Counts works. It is drawn between them only, so that no timed part is disturbed.
    pub bar: ProgressBar,
}

/// The result of a timed part.
pub struct Measurement {
    bench: &'static str,
    pub params: Map<String, Value>,
    ops: u64,
    pub bytes: u64,
    time: Duration,
    latencies: Latencies,
    used: ResourceUse,
}

/// The times of one thread.
struct ThreadRun {
    begin: Instant,
    end: Instant,
    latencies: Latencies,
}

impl Bench<'_> {
    /// Shows which work runs. `again` is whether it already ran, with other parameters.
    pub fn begin(&self, work: &'static str, again: bool) {
        self.bar.set_message(work);
        if !again {
            self.bar.inc(1);
        }
        self.bar.tick();
    }

    /// Samples the floor after a work, and prints its figure.
    pub fn sample_and_print(&mut self, measured: Measurement) -> Outcome {
        self.floor.sample()?;
        self.print(measured)
    }

    pub fn print(&self, measured: Measurement) -> Outcome {
        let Measurement { bench, params, ops, bytes, time, latencies, used } = measured;
        let figure = Figure {
            params: Value::Object(params),
            latencies,
            used,
            floor: self.floor.medians(),
            verdict: Verdict::Right,
            ..Figure::new(bench, ops, bytes, time)
        };
        self.bar.suspend(|| figure.print(self.arguments.json, Shape::Rate))
    }

    /// Opens the log of a work, in a directory of its own.
    pub fn open(&self, work: &str, options: Options) -> Outcome<(ConsensusLog, PathBuf)> {
        let dir = self.dir.join(work);
        // With `--keep`, the log of an earlier work is still there.
        if dir.exists() {
            return Err(Failure::failed(format!("{} is of another work", dir.display())));
        }
        let log = ConsensusLog::builder(&dir)
            .options(options)
            .open()
            .map_err(|error| Failure::from_consensus(error, &dir))?;
        Ok((log, dir))
    }

    /// Closes the log and removes it. Returns its metadata from before.
    pub fn end(&self, log: &ConsensusLog, dir: &Path) -> Outcome<LogStats> {
        let stats = log.stats().log_stats;
        log.close().map_err(|error| Failure::from_consensus(error, dir))?;
        if !self.arguments.keep {
            std::fs::remove_dir_all(dir).map_err(|error| {
                Failure::from_io(format_args!("remove {}", dir.display()), &error)
            })?;
        }
        Ok(stats)
    }

    /// Runs the work on some threads, each on its own slots, and times it.
    pub fn timed(
        &self,
        threads: usize,
        each: u64,
        work: impl Fn(&mut Vec<u8>, u64) -> Result<(), Error> + Sync,
    ) -> Outcome<(Duration, Latencies, ResourceUse)> {
        resources::reset_peak();
        let run_thread = |thread, (mut value, mut latencies), _| -> Result<ThreadRun, Error> {
            let begin = Instant::now();
            let mut clock = CallClock::start(TIMED_EVERY);
            for n in 0..each {
                work(&mut value, n * threads as u64 + thread)?;
                clock.end_call(|time| Latencies::add(&mut latencies, time));
            }
            Ok(ThreadRun { begin, end: Instant::now(), latencies })
        };
        let prepare = |_: &mut u64| (vec![0; self.arguments.size as usize], Latencies::new());
        let (start, parts) = threads::run(0..threads as u64, prepare, run_thread)
            .map_err(|error| Failure::from_io("start a thread", &error))?;
        let used = ResourceUse { resident: resources::peak(), ..start.snapshot.used() };
        let mut all = Latencies::new();
        let parts: Vec<ThreadRun> = parts
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error| Failure::from_consensus(error, &self.dir))?;
        parts.iter().for_each(|part| all.merge(&part.latencies));
        let begin = parts.iter().map(|part| part.begin).min();
        let end = parts.iter().map(|part| part.end).max();
        let time = end.zip(begin).map(|(end, begin)| end.duration_since(begin));
        Ok((time.unwrap_or_default(), all, used))
    }

    pub fn measured(
        &self,
        bench: &'static str,
        (options, log): (&Options, &LogStats),
        threads: usize,
        ops: u64,
        (time, latencies, used): (Duration, Latencies, ResourceUse),
    ) -> Measurement {
        let mut params = self.arguments.params(options);
        insert_disk(&mut params, log);
        params.insert("threads".into(), json!(threads));
        params.insert("count".into(), json!(ops));
        let bytes = ops * u64::from(self.arguments.size);
        Measurement { bench, params, ops, bytes, time, latencies, used }
    }
}
