//! Runs one work on its own log: opens the log, times the work on some threads, prints the figure.

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use esker_consensus::{ConsensusLog, Error, Options};
use esker_log::LogStats;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};

use super::arguments::{ConsensusBenchArguments, insert_disk};
use crate::machine::floor::Floor;
use crate::measure::figure::{Figure, Shape, Verdict};
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, Snapshot, Used};
use esker_command::exit::{Failure, Outcome};

/// The latency of one in this many operations is recorded.
const TIMED_EVERY: u64 = 16;

/// State that all works share.
pub struct Bench<'a> {
    pub arguments: &'a ConsensusBenchArguments,
    pub dir: PathBuf,
    pub floor: Floor,
    /// Counts works. It is drawn between them only, so that no timed part is disturbed.
    pub bar: ProgressBar,
}

/// The result of a timed part.
pub struct Measured {
    bench: &'static str,
    pub params: Map<String, Value>,
    ops: u64,
    pub bytes: u64,
    time: Duration,
    latencies: Latencies,
    used: Used,
}

/// The times of one thread.
#[derive(Default)]
struct Part {
    begin: Option<Instant>,
    end: Option<Instant>,
    latencies: Option<Latencies>,
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

    pub fn print(&self, measured: Measured) -> Outcome {
        let Measured { bench, params, ops, bytes, time, latencies, used } = measured;
        let figure = Figure {
            params: Value::Object(params),
            latencies,
            used,
            floor: self.floor.medians(),
            verdict: Verdict::Right,
            ..Figure::of(bench, ops, bytes, time)
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
            .map_err(|error| Failure::of_consensus(&error, &dir))?;
        Ok((log, dir))
    }

    /// Closes the log and removes it. Returns its metadata from before.
    pub fn end(&self, log: &ConsensusLog, dir: &Path) -> Outcome<LogStats> {
        let stats = log.stats().log_stats;
        log.close().map_err(|error| Failure::of_consensus(&error, dir))?;
        if !self.arguments.keep {
            std::fs::remove_dir_all(dir).map_err(|error| {
                Failure::of_io(format_args!("remove {}", dir.display()), &error)
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
    ) -> Outcome<(Duration, Latencies, Used)> {
        let barrier = Barrier::new(threads);
        resources::reset_peak();
        let snapshot = Snapshot::now();
        let parts: Vec<Result<Part, Error>> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads as u64)
                .map(|thread| {
                    let (barrier, work) = (&barrier, &work);
                    scope.spawn(move || {
                        let mut value = vec![0; self.arguments.size as usize];
                        let mut latencies = Latencies::new();
                        barrier.wait();
                        let begin = Instant::now();
                        for n in 0..each {
                            let slot = n * threads as u64 + thread;
                            if n % TIMED_EVERY == 0 {
                                let begin = Instant::now();
                                work(&mut value, slot)?;
                                latencies.add(begin.elapsed());
                            } else {
                                work(&mut value, slot)?;
                            }
                        }
                        let (begin, end) = (Some(begin), Some(Instant::now()));
                        Ok(Part { begin, end, latencies: Some(latencies) })
                    })
                })
                .collect();
            running.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::Closed))).collect()
        });
        let used = Used { resident: resources::peak(), ..snapshot.used() };
        let mut all = Latencies::new();
        let (mut begin, mut end) = (None, None);
        for part in parts {
            let part = part.map_err(|error| Failure::of_consensus(&error, &self.dir))?;
            begin = begin.min(part.begin).or(part.begin);
            end = end.max(part.end);
            if let Some(latencies) = part.latencies {
                all.merge(&latencies);
            }
        }
        let time = end.zip(begin).map(|(end, begin)| end.duration_since(begin));
        Ok((time.unwrap_or_default(), all, used))
    }

    pub fn measured(
        &self,
        bench: &'static str,
        (options, log): (&Options, &LogStats),
        threads: usize,
        ops: u64,
        (time, latencies, used): (Duration, Latencies, Used),
    ) -> Measured {
        let mut params = self.arguments.params(options);
        insert_disk(&mut params, log);
        params.insert("threads".into(), json!(threads));
        params.insert("count".into(), json!(ops));
        let bytes = ops * u64::from(self.arguments.size);
        Measured { bench, params, ops, bytes, time, latencies, used }
    }
}
