//! `esker consensus bench`: one figure for each operation, beside the floor of the same run.
//!
//! Every work gets a log of its own, and compares everything that it wrote, or read, with what it
//! should be. Only accepting is warmed up; elsewhere memory that is touched for the first time counts.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use clap::Args;
use esker_consensus::{Ballot, ConsensusLog, Error, Mode, Options};
use serde_json::{Map, Value, json};
use tokio::runtime::{Builder, Runtime};

use super::consensus_recover;
use super::crew::WORKERS;
use super::figure::{Figure, Shape};
use super::floor::Floor;
use super::latency::Latencies;
use super::place::Place;
use super::resources::{self, Mark, Used};
use crate::consensus_cmd::failure;
use crate::exit::{Failure, Outcome};
use crate::log_cmd::WritingArguments;
use crate::quantity;

const EXAMPLES: &str = "\
Examples:
  esker consensus bench
  esker consensus bench --json --only accept,recover --dir /data/bench

Works in memory are timed as a whole, and every 16th operation by itself. What was written is read back
and compared. The floor of this machine is sampled before, during and after.";

/// What can be measured.
const WORKS: [&str; 8] = [
    "accept",
    "accept-commit",
    "read-committed",
    "read-uncommitted",
    "scan-1000",
    "durable-accept-commit",
    "batch-commit-100",
    "recover",
];
/// Entries that the reading works read.
const READ_FROM: u64 = 10_000;
/// Reads under one guard.
const UNDER_ONE_GUARD: u64 = 1024;
const EVERY: u64 = 16;
pub const BALLOT: Ballot = Ballot::new(1, 1);

/// Arguments of `esker consensus bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ConsensusBenchArguments {
    /// Measure these alone: accept, accept-commit, read-committed, read-uncommitted, scan-1000,
    /// durable-accept-commit, batch-commit-100, recover
    #[arg(long, value_delimiter = ',', value_name = "WORK,..", value_parser = WORKS)]
    pub only: Vec<String>,
    /// The size of a value
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = quantity::small_bytes)]
    pub size: u32,
    /// The length of each timed part of the durable works [default: 2]
    #[arg(long, value_name = "N", conflicts_with = "count")]
    pub seconds: Option<f64>,
    /// The operations of each timed part [default: what suits the work]
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Entries in the log that is opened
    #[arg(long, value_name = "N", default_value_t = 5_000_000)]
    pub entries: u64,
    /// Where to work; made, and removed at the end
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Leave the logs in --dir at the end
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON object a figure, and nothing else, on standard output
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub writing: WritingArguments,
}

impl ConsensusBenchArguments {
    /// The defaults, but for what was asked for.
    pub fn options(&self, mode: Mode, sync_on_commit: bool) -> Options {
        consensus_options(&self.writing, mode, sync_on_commit)
    }

    /// What every figure tells of its circumstances.
    pub fn params(&self, mode: Mode, options: &Options) -> Map<String, Value> {
        let mut params = Map::new();
        let mode = if mode == Mode::Durable { "durable" } else { "volatile" };
        let told = [
            ("mode", json!(mode)),
            ("size", json!(self.size)),
            ("sync_on_commit", json!(options.sync_on_commit)),
            ("mutable_size", json!(options.mutable_size)),
            ("cache_size", json!(options.cache_size)),
            ("segment_size", json!(options.segment_size)),
            ("checkpoint_every", json!(options.checkpoint_every)),
            ("direct", json!(self.writing.direct.name())),
        ];
        params.extend(told.into_iter().map(|(name, value)| (name.to_owned(), value)));
        params
    }
}

/// The options that the flags for writing ask for.
pub fn consensus_options(writing: &WritingArguments, mode: Mode, sync_on_commit: bool) -> Options {
    let log = writing.options();
    let mut options = Options::on(log.disk);
    options.mode = mode;
    options.sync_on_commit = sync_on_commit;
    options.segment_size = log.segment_size;
    options.direct = log.direct;
    options.dsync = log.dsync;
    options
}

/// Makes a value that of a slot: its number at both ends, so that making it takes nothing of what is
/// timed. The rest is as it was.
pub fn value_of(slot: u64, value: &mut [u8]) {
    let stamp = slot.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    let len = value.len();
    let stamped = len.min(stamp.len());
    value[..stamped].copy_from_slice(&stamp[..stamped]);
    value[len - stamped..].copy_from_slice(&stamp[..stamped]);
}

/// Measures, reads back, prints.
pub fn run(arguments: &ConsensusBenchArguments) -> Outcome {
    let place = Place::make(arguments.dir.as_deref(), arguments.keep)?;
    let mut floor = Floor::prepare(&place.floor())?;
    floor.sample()?;
    let mut bench = Bench { arguments, dir: place.log(), floor };
    let wants =
        |work: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == work);
    for threads in [1, 2] {
        for work in &WORKS[..4] {
            if wants(work) {
                let measured = match *work {
                    "accept" => bench.accept(threads),
                    "accept-commit" => bench.accept_commit(threads),
                    "read-committed" => bench.read(threads, true),
                    _ => bench.read(threads, false),
                }?;
                bench.floor.sample()?;
                bench.print(measured)?;
            }
        }
    }
    if wants("scan-1000") {
        let measured = bench.scan()?;
        bench.print(measured)?;
    }
    if wants("durable-accept-commit") {
        for callers in [1, 32] {
            let measured = bench.durable(callers)?;
            bench.floor.sample()?;
            bench.print(measured)?;
        }
    }
    if wants("batch-commit-100") {
        let measured = bench.batch()?;
        bench.floor.sample()?;
        bench.print(measured)?;
    }
    if wants("recover") {
        consensus_recover::run(arguments, &place, &mut bench.floor)?;
    }
    Ok(())
}

struct Bench<'a> {
    arguments: &'a ConsensusBenchArguments,
    dir: PathBuf,
    floor: Floor,
}

/// A timed part.
struct Measured {
    bench: &'static str,
    params: Map<String, Value>,
    ops: u64,
    bytes: u64,
    time: Duration,
    latencies: Latencies,
    used: Used,
}

/// What a thread or task does, and how long each part of it took.
#[derive(Default)]
struct Part {
    begin: Option<Instant>,
    end: Option<Instant>,
    latencies: Option<Latencies>,
}

impl Bench<'_> {
    fn print(&self, measured: Measured) -> Outcome {
        let Measured { bench, params, ops, bytes, time, latencies, used } = measured;
        Figure {
            params: Value::Object(params),
            latencies,
            used,
            floor: self.floor.medians(),
            verified: true,
            ..Figure::of(bench, ops, bytes, time)
        }
        .print(self.arguments.json, Shape::Rate)
    }

    fn open(&self, work: &str, options: Options) -> Outcome<(ConsensusLog, PathBuf)> {
        let dir = self.dir.join(work);
        let log = ConsensusLog::open(&dir, options).map_err(|error| failure(&error, &dir))?;
        Ok((log, dir))
    }

    fn end(&self, log: &ConsensusLog, dir: &Path) -> Outcome {
        log.close().map_err(|error| failure(&error, dir))?;
        if !self.arguments.keep {
            std::fs::remove_dir_all(dir).map_err(|error| {
                Failure::of_io(format_args!("remove {}", dir.display()), &error)
            })?;
        }
        Ok(())
    }

    /// Runs the same work on some threads, on slots of their own, and times it.
    fn timed(
        &self,
        threads: usize,
        each: u64,
        work: impl Fn(&mut Vec<u8>, u64) -> Result<(), Error> + Sync,
    ) -> Outcome<(Duration, Latencies, Used)> {
        let barrier = Barrier::new(threads);
        resources::reset_peak();
        let mark = Mark::now();
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
                            if n % EVERY == 0 {
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
        let used = Used { resident: resources::peak(), ..mark.used() };
        let mut all = Latencies::new();
        let (mut begin, mut end) = (None, None);
        for part in parts {
            let part = part.map_err(|error| failure(&error, &self.dir))?;
            begin = begin.min(part.begin).or(part.begin);
            end = end.max(part.end);
            if let Some(latencies) = part.latencies {
                all.merge(&latencies);
            }
        }
        let time = end.zip(begin).map(|(end, begin)| end.duration_since(begin));
        Ok((time.unwrap_or_default(), all, used))
    }

    fn measured(
        &self,
        bench: &'static str,
        mode: Mode,
        options: &Options,
        threads: usize,
        ops: u64,
        (time, latencies, used): (Duration, Latencies, Used),
    ) -> Measured {
        let mut params = self.arguments.params(mode, options);
        params.insert("threads".into(), json!(threads));
        params.insert("count".into(), json!(ops));
        let bytes = ops * u64::from(self.arguments.size);
        Measured { bench, params, ops, bytes, time, latencies, used }
    }

    /// In the steady state: rounds of accepts, which are timed, and between them their commits, which
    /// are not and make room. The first rounds are not counted.
    fn accept(&self, threads: usize) -> Outcome<Measured> {
        const ROUNDS: u64 = 10;
        const WARM_UP: u64 = 5;
        let mode = Mode::Volatile;
        let mut options = self.arguments.options(mode, false);
        let room = options.mutable_size / u64::from(self.arguments.size).max(64);
        let each = (self.arguments.count.unwrap_or(600_000) / WARM_UP).clamp(2, room) / 2 * 2;
        // What is committed leaves memory early, so that the next round finds it free.
        options.cache_size = each * u64::from(self.arguments.size).max(64);
        let (log, dir) = self.open("accept", options.clone())?;
        let told = |error| failure(&error, &dir);
        let mut outcome = (Duration::ZERO, Latencies::new(), Used::default());
        for round in 0..ROUNDS {
            let (time, latencies, used) =
                self.timed(threads, each / threads as u64, |value, n| {
                    let slot = round * each + n;
                    value_of(slot, value);
                    log.accept(slot, BALLOT, value)?.wait()
                })?;
            if round >= WARM_UP {
                outcome.0 += time;
                outcome.1.merge(&latencies);
                outcome.2 = outcome.2.and(used);
            }
            log.commit_through((round + 1) * each - 1)
                .and_then(|ticket| ticket.wait())
                .map_err(told)?;
        }
        self.compare_committed(&log, ROUNDS * each)?;
        self.end(&log, &dir)?;
        let count = (ROUNDS - WARM_UP) * each;
        let mut measured =
            self.measured("consensus/accept", mode, &options, threads, count, outcome);
        measured.params.insert("rounds".into(), json!(ROUNDS - WARM_UP));
        measured.params.insert("commits_between_rounds".into(), json!("not timed"));
        Ok(measured)
    }

    fn accept_commit(&self, threads: usize) -> Outcome<Measured> {
        let mode = Mode::Volatile;
        let options = self.arguments.options(mode, false);
        let count = self.arguments.count.unwrap_or(2_000_000) / 2 * 2;
        let (log, dir) = self.open("accept-commit", options.clone())?;
        let outcome = self.timed(threads, count / threads as u64, |value, slot| {
            value_of(slot, value);
            log.accept(slot, BALLOT, value)?.wait()?;
            log.commit(slot, BALLOT).map(drop)
        })?;
        self.compare_committed(&log, count)?;
        self.end(&log, &dir)?;
        Ok(self.measured("consensus/accept-commit", mode, &options, threads, count, outcome))
    }

    fn read(&self, threads: usize, committed: bool) -> Outcome<Measured> {
        let mode = Mode::Volatile;
        let options = self.arguments.options(mode, true);
        let (log, dir) = self.open("read", options.clone())?;
        let told = |error| failure(&error, &dir);
        let mut value = vec![0; self.arguments.size as usize];
        for slot in 0..READ_FROM {
            value_of(slot, &mut value);
            log.accept(slot, BALLOT, &value).and_then(|ticket| ticket.wait()).map_err(told)?;
        }
        if committed {
            log.commit_through(READ_FROM - 1).and_then(|ticket| ticket.wait()).map_err(told)?;
        }
        // Each operation of the timed part is a guard and as many reads as are made under one.
        let rounds = self.arguments.count.unwrap_or(16 << 20).div_ceil(UNDER_ONE_GUARD).max(2) / 2;
        let reads = rounds * 2 * UNDER_ONE_GUARD;
        let mut outcome = self.timed(threads, rounds * 2 / threads as u64, |_, round| {
            let guard = log.pin();
            for n in 0..UNDER_ONE_GUARD {
                // A stride that is prime to their number, and comes to every one.
                let slot = (round * UNDER_ONE_GUARD + n) * 7919 % READ_FROM;
                let entry = if committed {
                    log.read_committed(slot, &guard)?
                } else {
                    log.read(slot, &guard)?
                };
                if std::hint::black_box(&entry).slot() != slot || entry.value().is_empty() {
                    return Err(Error::SlotNotFound { slot });
                }
            }
            Ok(())
        })?;
        outcome.1 = single_reads(&log, committed).map_err(told)?;
        if committed {
            self.compare_committed(&log, READ_FROM)?;
        } else {
            self.compare_uncommitted(&log, READ_FROM)?;
        }
        self.end(&log, &dir)?;
        let bench =
            if committed { "consensus/read-committed" } else { "consensus/read-uncommitted" };
        let mut measured = self.measured(bench, mode, &options, threads, reads, outcome);
        measured.params.insert("entries".into(), json!(READ_FROM));
        measured.params.insert("reads_under_one_guard".into(), json!(UNDER_ONE_GUARD));
        measured.params.insert(
            "latencies".into(),
            json!("of 4096 single reads behind the timed part, the clock included"),
        );
        Ok(measured)
    }

    fn scan(&self) -> Outcome<Measured> {
        const SCANNED: u64 = 1000;
        let mode = Mode::Volatile;
        let options = self.arguments.options(mode, true);
        let (log, dir) = self.open("scan", options.clone())?;
        let told = |error| failure(&error, &dir);
        let mut value = vec![0; self.arguments.size as usize];
        for slot in 0..SCANNED {
            value_of(slot, &mut value);
            log.accept(slot, BALLOT, &value).and_then(|ticket| ticket.wait()).map_err(told)?;
        }
        let count = self.arguments.count.unwrap_or(20_000).min(1_000_000);
        let outcome = self.timed(1, count, |_, _| {
            let guard = log.pin();
            let scanned = log.scan_uncommitted(&guard)?.len() as u64;
            if scanned == SCANNED { Ok(()) } else { Err(Error::Gap { slot: scanned }) }
        })?;
        self.compare_uncommitted(&log, SCANNED)?;
        self.end(&log, &dir)?;
        let mut measured = self.measured("consensus/scan-1000", mode, &options, 1, count, outcome);
        measured.bytes *= SCANNED;
        measured.params.insert("entries".into(), json!(SCANNED));
        Ok(measured)
    }

    /// How long a durable work runs: so many operations, or so long.
    fn until(&self, each: u64) -> (u64, Duration) {
        match self.arguments.count {
            Some(count) => ((count / each).max(1), Duration::MAX),
            None => {
                let seconds = self.arguments.seconds.unwrap_or(2.0).clamp(0.01, 3600.0);
                (u64::MAX, Duration::from_secs_f64(seconds))
            }
        }
    }

    fn durable(&self, callers: u64) -> Outcome<Measured> {
        let mode = Mode::Durable;
        let options = self.arguments.options(mode, true);
        let (log, dir) = self.open("durable", options.clone())?;
        let runtime = runtime()?;
        let (most, span) = self.until(callers);
        let size = self.arguments.size as usize;
        let mark = Mark::now();
        resources::reset_peak();
        let begin = Instant::now();
        let outcome = runtime.block_on(async {
            let tasks: Vec<_> = (0..callers)
                .map(|caller| {
                    let log = log.clone();
                    tokio::spawn(async move {
                        let mut latencies = Latencies::new();
                        let mut value = vec![0; size];
                        let mut done = 0;
                        while done < most && begin.elapsed() < span {
                            let slot = done * callers + caller;
                            value_of(slot, &mut value);
                            let one = Instant::now();
                            log.accept(slot, BALLOT, &value)?.await?;
                            log.commit(slot, BALLOT)?.await?;
                            latencies.add(one.elapsed());
                            done += 1;
                        }
                        Ok::<_, Error>((latencies, done))
                    })
                })
                .collect();
            let mut all = (Latencies::new(), 0);
            for task in tasks {
                let (latencies, done) = task.await.map_err(|_| Error::Closed)??;
                all.0.merge(&latencies);
                all.1 += done;
            }
            Ok(all)
        });
        let time = begin.elapsed();
        let used = Used { resident: resources::peak(), ..mark.used() };
        let (latencies, ops) = outcome.map_err(|error: Error| failure(&error, &dir))?;
        let count = log.committed_range().map_or(0, |range| range.count);
        if count != ops {
            return Err(Failure::failed(format!("{count} of {ops} commits are there")));
        }
        self.compare_all(&log)?;
        let syncs = log.stats().log.activity.syncs;
        self.end(&log, &dir)?;
        let mut measured = self.measured(
            "consensus/durable-accept-commit",
            mode,
            &options,
            callers as usize,
            ops,
            (time, latencies, used),
        );
        measured.params.insert("syncs".into(), json!(syncs));
        measured.params.insert("callers".into(), json!("tasks"));
        measured.params.insert("workers".into(), json!(WORKERS));
        Ok(measured)
    }

    fn batch(&self) -> Outcome<Measured> {
        const BATCH: u64 = 100;
        let mode = Mode::Durable;
        let options = self.arguments.options(mode, true);
        let (log, dir) = self.open("batch", options.clone())?;
        let told = |error| failure(&error, &dir);
        let (most, span) = self.until(BATCH);
        let size = self.arguments.size as usize;
        let mut latencies = Latencies::new();
        let (mut time, mut rounds, mut syncs) = (Duration::ZERO, 0, 0);
        let (begin, mark) = (Instant::now(), Mark::now());
        resources::reset_peak();
        while rounds < most && begin.elapsed() < span {
            let slots = rounds * BATCH..(rounds + 1) * BATCH;
            let mut values = vec![vec![0; size]; BATCH as usize];
            slots.clone().zip(&mut values).for_each(|(slot, value)| value_of(slot, value));
            let pairs: Vec<_> = slots.clone().zip(values.iter().map(Vec::as_slice)).collect();
            log.accept_batch(BALLOT, &pairs).and_then(|ticket| ticket.wait()).map_err(told)?;
            let marks: Vec<_> = slots.map(|slot| (slot, BALLOT)).collect();
            let before = log.stats().log.activity.syncs;
            let one = Instant::now();
            let done = log.commit_batch(&marks).map_err(told)?;
            done.ticket.wait().map_err(told)?;
            let took = one.elapsed();
            latencies.add(took);
            time += took;
            syncs += log.stats().log.activity.syncs - before;
            rounds += 1;
            for result in done.results {
                result.map_err(told)?;
            }
        }
        let used = Used { resident: resources::peak(), ..mark.used() };
        self.compare_committed(&log, rounds * BATCH)?;
        self.end(&log, &dir)?;
        let outcome = (time, latencies, used);
        let bench = "consensus/batch-commit-100";
        let mut measured = self.measured(bench, mode, &options, 1, rounds * BATCH, outcome);
        measured.params.insert("commits".into(), json!(BATCH));
        measured.params.insert("batches".into(), json!(rounds));
        measured.params.insert("syncs".into(), json!(syncs));
        measured
            .params
            .insert("latencies".into(), json!("of whole batches; accepting them is not timed"));
        Ok(measured)
    }

    fn compare_uncommitted(&self, log: &ConsensusLog, count: u64) -> Outcome {
        let guard = log.pin();
        let entries = log.scan_uncommitted(&guard).map_err(|error| failure(&error, &self.dir))?;
        let mut value = vec![0; self.arguments.size as usize];
        for (entry, slot) in entries.iter().zip(0..) {
            value_of(slot, &mut value);
            if entry.slot() != slot || entry.value() != value {
                return Err(Failure::failed(format!("slot {slot} is not as it was written")));
            }
        }
        if entries.len() as u64 == count {
            return Ok(());
        }
        Err(Failure::failed(format!("{} of {count} entries are there", entries.len())))
    }

    fn compare_committed(&self, log: &ConsensusLog, count: u64) -> Outcome {
        let seen = self.compare_all(log)?;
        if seen == count {
            return Ok(());
        }
        Err(Failure::failed(format!("{seen} of {count} commits are there")))
    }

    /// Compares every committed value; how many there are.
    fn compare_all(&self, log: &ConsensusLog) -> Outcome<u64> {
        compare(log, self.arguments.size as usize, &self.dir)
    }
}

/// Compares every committed value with what it should be; how many there are.
pub fn compare(log: &ConsensusLog, size: usize, dir: &Path) -> Outcome<u64> {
    let mut value = vec![0; size];
    let (mut seen, mut wrong) = (0, None);
    log.replay_from(0, |entry| {
        value_of(entry.slot(), &mut value);
        seen += 1;
        if entry.value() == value {
            return ControlFlow::Continue(());
        }
        wrong = Some(entry.slot());
        ControlFlow::Break(())
    })
    .map_err(|error| failure(&error, dir))?;
    match wrong {
        Some(slot) => Err(Failure::failed(format!("slot {slot} is not as it was written"))),
        None => Ok(seen),
    }
}

/// How long single reads take, the clock included.
fn single_reads(log: &ConsensusLog, committed: bool) -> Result<Latencies, Error> {
    let mut latencies = Latencies::new();
    let guard = log.pin();
    for n in 0..4096 {
        let slot = n * 7919 % READ_FROM;
        let begin = Instant::now();
        let entry =
            if committed { log.read_committed(slot, &guard)? } else { log.read(slot, &guard)? };
        std::hint::black_box(&entry);
        latencies.add(begin.elapsed());
    }
    Ok(latencies)
}

fn runtime() -> Outcome<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .build()
        .map_err(|error| Failure::of_io("start the runtime", &error))
}
