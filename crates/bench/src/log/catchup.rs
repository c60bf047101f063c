//! `log/catchup`: a reader that starts at the oldest record of a large log, alone and beside a
//! writer at full speed. The writer is measured with and without the reader. The same files are
//! also read without a log, as the floor of the reader.
//!
//! Where the log does not bypass the page cache, the cached pages of the segments are dropped
//! before each run, so that the disk is measured.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use esker_log::{Log, Start};
use serde_json::{Map, Value, json};

use crate::load::callers::{Callers, Slice, Workload};
use crate::load::follower::{Follower, FollowerReport};
use crate::load::slice::Until;
use crate::log::log_arguments::{LogBenchArguments, SECONDS};
use crate::log::open::DEFAULT_LOG_BYTES;
use crate::machine::floor::Floor;
use crate::measure::figure::{Figure, Shape, Verdict, rounded};
use crate::measure::keys::keys;
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, ResourceUse, Snapshot};
use crate::page_cache::{drop_cached_pages, read_raw};
use crate::records::verify::{ExpectedRecords, Tally, Verify};
use crate::workdir::Workdir;
use esker_command::exit::{Failure, Outcome};
use esker_command::library_errors::with_causes;

/// The least bytes of a lap beside the writer of which a rate is given.
const LEAST_LAP: u64 = 1 << 20;

/// Runs, verifies while reading, prints.
pub fn run(arguments: &LogBenchArguments) -> Outcome {
    let workdir = Workdir::make(arguments.dir.as_deref(), arguments.keep)?;
    let dir = workdir.log();
    let log_failure = |error| Failure::from_log(&error, &dir);
    let (options, recipe) = (arguments.options(), arguments.recipe());
    let delay = Duration::ZERO;
    let work =
        Workload { writers: 1, batch: arguments.batch(), blocking: false, pipelined: true, delay };
    let mut floor = Floor::prepare(&workdir.floor())?;
    floor.sample()?;
    let log = Log::builder(&dir).options(options.clone()).open();
    let log = log.map_err(|error| log_failure(error.into()))?;
    let mut callers = Callers::new(&log, work, &recipe)?;
    let bytes = arguments.bytes.unwrap_or(DEFAULT_LOG_BYTES);
    let records = bytes.div_ceil(mean_size(arguments)).max(1);
    let built = callers.run(Until::Records(records)).map_err(log_failure)?;
    let direct = log.stats().direct;
    let reading = Reading {
        log: &log,
        dir: &dir,
        expected: ExpectedRecords::new(&arguments.expected_recipe(), arguments.verify()),
        last: log.durable().0,
        direct,
    };
    floor.sample()?;

    let (alone, used) = reading.alone(&built)?;
    floor.sample()?;
    let cold = direct || drop_cached_pages(&dir);
    let raw = read_raw(&dir, direct)
        .map_err(|error| Failure::failed(format!("read: {}", with_causes(&error))))?;
    let followed = arguments.follower.then(|| reading.follow(arguments));
    let followed = followed.transpose()?;
    if followed.is_some() {
        floor.sample()?;
    }

    let seconds = arguments.seconds.unwrap_or(SECONDS);
    let (writer_alone, writer_beside, beside) = writer_rates(&reading, &mut callers, seconds)?;
    floor.sample()?;
    let stats = log.stats();
    drop(callers);
    log.close().map_err(|error| log_failure(error.into()))?;

    let mut params = arguments.params(&options);
    params.extend(own_params(arguments, bytes, seconds, &beside));
    params.insert("disk".into(), json!(stats.disk));
    params.insert("direct".into(), json!(direct));
    params.insert("dsync".into(), json!(stats.dsync));
    params.insert("page_cache".into(), json!(page_cache(direct, alone.cold && beside.cold)));

    let mut more = Map::new();
    if let Some(followed) = &followed {
        insert_follower(&mut more, followed, &alone, floor.medians().read_mb_per_s);
    }
    more.extend(writer_keys(writer_alone, writer_beside));
    let to_raw = alone.rate() / raw.max(1e-9);
    // A lap of less is over before the reader reads: what is left is the cost of a stream.
    let reader_beside = (built.bytes >= LEAST_LAP).then_some(rounded(beside.rate(), 2));
    more.extend(keys([
        ("raw_read_mb_per_s", json!(cold.then(|| rounded(raw, 2)))),
        ("reader_to_raw_read", json!(cold.then(|| rounded(to_raw, 3)))),
        ("touched_bytes", json!(alone.tally.touched)),
        ("reader_mb_per_s_with_writer", json!(reader_beside)),
    ]));
    Figure {
        params: Value::Object(params),
        latencies: alone.latencies,
        used,
        floor: floor.medians(),
        verdict: Verdict::right_if(arguments.verify() != Verify::None),
        more,
        ..Figure::new("log/catchup", alone.tally.records, alone.tally.bytes, alone.time)
    }
    .print(arguments.json, Shape::Reading)
}

/// Measures the writer without a reader and with one. Returns both rates in MB per second, and what
/// the reader read.
fn writer_rates(
    reading: &Reading<'_>,
    callers: &mut Callers,
    seconds: f64,
) -> Outcome<(f64, f64, Read)> {
    let log_failure = |error| Failure::from_log(&error, reading.dir);
    let time = |seconds: f64| Until::Elapsed(Duration::from_secs_f64(seconds));
    // A disk changes from minute to minute: the writer alone is measured before and after.
    let before = callers.run(time(seconds / 2.0)).map_err(log_failure)?;
    let (wrote, beside) = reading.beside(callers, time(seconds))?;
    let after = callers.run(time(seconds / 2.0)).map_err(log_failure)?;
    let alone = rate(before.bytes + after.bytes, before.time + after.time);
    Ok((alone, rate(wrote.bytes, wrote.time), beside))
}

/// MB per second.
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-9) / 1e6
}

/// The parameters of this benchmark beside the options of the log.
fn own_params(
    arguments: &LogBenchArguments,
    bytes: u64,
    seconds: f64,
    beside: &Read,
) -> Map<String, Value> {
    keys([
        ("bytes", json!(bytes)),
        ("seconds", json!(seconds)),
        ("writers", json!(1)),
        ("batch", json!(arguments.batch())),
        ("pipelined", json!(true)),
        ("verify", json!(arguments.verify().name())),
        ("follower", json!(arguments.follower)),
        ("laps_beside_writer", json!(beside.laps)),
    ])
}

/// The keys of the writer, from its rates in MB per second.
fn writer_keys(alone: f64, beside: f64) -> Map<String, Value> {
    keys([
        ("writer_mb_per_s_alone", json!(rounded(alone, 2))),
        ("writer_mb_per_s_with_reader", json!(rounded(beside, 2))),
        ("writer_kept", json!(rounded(beside / alone.max(1e-9), 4))),
    ])
}

/// How the page cache took part, for the parameters.
fn page_cache(direct: bool, cold: bool) -> &'static str {
    match (direct, cold) {
        (true, _) => "bypassed",
        (false, true) => "segments dropped by advice before each reading",
        (false, false) => "kept",
    }
}

/// Adds what a follower in another process read, beside the reader here and the floor.
fn insert_follower(
    more: &mut Map<String, Value>,
    followed: &FollowerReport,
    alone: &Read,
    floor: f64,
) {
    followed.insert_into(more);
    let follower = followed.mb_per_s();
    let to_reader = follower / alone.rate().max(1e-9);
    more.insert("follower_mb_per_s".into(), json!(rounded(follower, 2)));
    more.insert("follower_to_read".into(), json!(rounded(follower / floor.max(1e-9), 3)));
    more.insert("follower_to_reader".into(), json!(rounded(to_reader, 3)));
}

fn mean_size(arguments: &LogBenchArguments) -> u64 {
    let (least, most) = (*arguments.size.start(), *arguments.size.end());
    ((u64::from(least) + u64::from(most)) / 2).max(1)
}

/// A log to read up to a durable record.
struct Reading<'a> {
    log: &'a Log,
    dir: &'a Path,
    expected: ExpectedRecords,
    last: u64,
    direct: bool,
}

/// The result of reading.
struct Read {
    tally: Tally,
    time: Duration,
    /// Per batch.
    latencies: Latencies,
    laps: u64,
    /// Whether no page of the segments was cached before.
    cold: bool,
}

impl Read {
    /// MB per second.
    fn rate(&self) -> f64 {
        rate(self.tally.bytes, self.time)
    }
}

impl Reading<'_> {
    /// Reads everything once, without a writer, and compares it with what was written.
    fn alone(&self, built: &Slice) -> Outcome<(Read, ResourceUse)> {
        resources::reset_peak();
        let snapshot = Snapshot::now();
        let alone = self.lap(&AtomicBool::new(false))?;
        let used = ResourceUse { resident: resources::peak(), ..snapshot.used() };
        let Tally { records, bytes, .. } = alone.tally;
        if (records, bytes) != (built.ops, built.bytes) {
            return Err(Failure::failed(format!(
                "the reader read {records} records of {bytes} bytes instead of the {} records of {} \
                 bytes that were written",
                built.ops, built.bytes
            )));
        }
        Ok((alone, used))
    }

    /// Reads from the oldest record to the last, or until `over` is set.
    fn lap(&self, over: &AtomicBool) -> Outcome<Read> {
        let log_failure = |error| Failure::from_log(&error, self.dir);
        let cold = self.direct || drop_cached_pages(self.dir);
        let (mut tally, mut latencies) = (Tally::default(), Latencies::new());
        let begin = Instant::now();
        let mut stream =
            self.log.stream(Start::Oldest).map_err(|error| log_failure(error.into()))?;
        let mut seen = 0;
        while seen < self.last && !over.load(Relaxed) {
            let start = Instant::now();
            let Some(batch) = stream.try_next().map_err(|error| log_failure(error.into()))? else {
                return Err(Failure::failed(format!(
                    "the reader stopped after record {seen} of {}",
                    self.last
                )));
            };
            latencies.add(start.elapsed());
            tally = tally.and(self.expected.check(0, &mut seen, &batch)?);
        }
        Ok(Read { tally, time: begin.elapsed(), latencies, laps: 1, cold })
    }

    /// Reads everything in a follower process.
    fn follow(&self, arguments: &LogBenchArguments) -> Outcome<FollowerReport> {
        if !self.direct {
            drop_cached_pages(self.dir);
        }
        let followed = Follower::start(arguments, self.dir, None)?.read_to(self.last)?;
        if followed.tally.records != self.last {
            let (read, last) = (followed.tally.records, self.last);
            return Err(Failure::failed(format!("the follower read {read} of {last} records")));
        }
        Ok(followed)
    }

    /// Reads the log repeatedly while the writer appends.
    fn beside(&self, callers: &mut Callers, until: Until) -> Outcome<(Slice, Read)> {
        let over = AtomicBool::new(false);
        let (wrote, read) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut all = self.lap(&over)?;
                while !over.load(Relaxed) {
                    let lap = self.lap(&over)?;
                    all.tally = all.tally.and(lap.tally);
                    all.time += lap.time;
                    all.laps += 1;
                    all.cold &= lap.cold;
                }
                Ok(all)
            });
            let wrote = callers.run(until);
            over.store(true, Relaxed);
            let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (wrote, read)
        });
        let wrote = wrote.map_err(|error| Failure::from_log(&error, self.dir))?;
        Ok((wrote, read?))
    }
}
