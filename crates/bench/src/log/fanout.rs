//! `log/fanout`: many readers at the tip of one log, while one writer appends.
//!
//! The run has slices. A slice ends when every reader has received its last record and is idle, so
//! that the totals are complete and the floor can be sampled between slices. With
//! `--rate 0` each append is a slice of its own and starts when all readers are idle.

use std::mem::size_of;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_log::{Log, LogStream};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::load::durable_times::{self, DurableTimes};
use crate::load::follower::{CATCH_UP_TIMEOUT, Follower};
use crate::load::open_loop::{OpenLoop, WrittenRecords};
use crate::load::slice::Until;
use crate::load::tail_readers::TailReaders;
use crate::load::tasks::{self, WORKER_THREADS};
use crate::log::log_arguments::{LogBenchArguments, SECONDS};
use crate::machine::floor::Floor;
use crate::measure::allocations;
use crate::measure::figure::{Figure, Shape, Verdict, rounded};
use crate::measure::floor_figures::FloorFigures;
use crate::measure::keys::keys;
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, ResourceUse, Snapshot};
use crate::records::readback;
use crate::records::verify::{ExpectedRecords, Tally, Verify};
use crate::workdir::Workdir;
use esker_command::exit::{Failure, Outcome};

/// Slices of the timed part.
const SLICE_COUNT: u32 = 2;
/// The warm-up before the timed part, as a part of it.
const WARM_UP_PART: f64 = 0.1;
/// How long all readers are idle between two appends with `--rate 0`.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);

/// Runs, reads back, prints.
pub fn run(arguments: &LogBenchArguments, readers: u32) -> Outcome {
    let workdir = Workdir::make(arguments.dir.as_deref(), arguments.keep)?;
    let dir = workdir.log();
    let log_failure = |error| Failure::from_log(&error, &dir);
    let (options, recipe) = (arguments.options(), arguments.recipe());
    let mut floor = Floor::prepare(&workdir.floor())?;
    floor.sample()?;
    let log = Log::builder(&dir)
        .options(options.clone())
        .open()
        .map_err(|error| log_failure(error.into()))?;
    let runtime = tasks::runtime().map_err(|error| Failure::from_io("start threads", &error))?;
    let of_io = |error| Failure::from_io("start a thread", &error);

    let durable_times = Arc::new(DurableTimes::new());
    let expected = ExpectedRecords::new(&arguments.expected_recipe(), arguments.verify());
    let follower = arguments.follower.then(|| {
        let durable_times = Some(Arc::clone(&durable_times));
        Follower::start(arguments, &dir, durable_times)
    });
    let mut fanout = Fanout {
        follower: follower.transpose()?,
        tail_readers: Arc::new(TailReaders::new(
            dir.clone(),
            readers,
            expected,
            Arc::clone(&durable_times),
        )),
        open_loop: Some(
            OpenLoop::new(&log, &recipe, arguments.batch(), wanted_rate(arguments))
                .map_err(of_io)?,
        ),
        blocking: arguments.blocking,
        runtime,
        dir: &dir,
        tasks: Vec::with_capacity(readers as usize),
    };
    let idle_bytes = fanout.start_readers(&log, durable_times)?;
    let total = fanout.measure(arguments, &mut floor)?;
    fanout.end()?;
    let follower = fanout.follower.take();
    let open_loop = fanout.open_loop.take().unwrap_or_else(|| unreachable!("there between slices"));
    let count = open_loop.count();
    let mut more = Map::new();
    if let Some(follower) = follower {
        follow_to_end(follower, count, &mut more)?;
    }
    drop((fanout, open_loop));
    let stats = log.stats();
    log.close().map_err(|error| log_failure(error.into()))?;
    floor.sample()?;
    readback::compare(&dir, &options, &recipe, 1)?.ends_with(&[count])?;

    let mut params = arguments.params(&options);
    params.extend(own_params(arguments, readers, &total));
    params.extend(keys([
        ("tail_cache", json!(options.tail_cache)),
        ("disk", json!(stats.disk)),
        ("direct", json!(stats.direct)),
        ("dsync", json!(stats.dsync)),
        ("commits", json!(stats.commits)),
        ("syncs", json!(stats.syncs)),
    ]));

    more.extend(reader_keys(&total, idle_bytes, readers));
    let verdict = Verdict::right_if(arguments.verify() != Verify::None);
    let (wrote, read) = figures(total, (params, more), floor.medians(), verdict);
    wrote.print(arguments.json, Shape::Rate)?;
    read.print(arguments.json, Shape::Reading)
}

/// The keys of readers alone.
fn reader_keys(total: &Total, idle_bytes: u64, readers: u32) -> Map<String, Value> {
    let lags = &total.lags;
    keys([
        ("touched_bytes", json!(total.read.touched)),
        ("lag_p50_us", json!(lags.quantile_us(0.5))),
        ("lag_p99_us", json!(lags.quantile_us(0.99))),
        ("lag_max_us", json!(lags.max_us())),
        ("deliveries", json!(lags.count())),
        ("idle_bytes_per_reader", json!(rounded(idle_bytes as f64 / f64::from(readers), 1))),
    ])
}

/// The figures of the writer and of the readers. The writer's records were read back; `verdict` is
/// that of the readers.
fn figures(
    total: Total,
    (params, more): (Map<String, Value>, Map<String, Value>),
    floor: FloorFigures,
    verdict: Verdict,
) -> (Figure, Figure) {
    let (params, used) = (Value::Object(params), total.used);
    let wrote = Figure {
        params: params.clone(),
        used,
        floor,
        latencies: total.latencies,
        verdict: Verdict::Right,
        ..Figure::new("log/append", total.wrote.records, total.wrote.bytes, total.wrote.time)
    };
    let read = Figure {
        params,
        used,
        floor,
        latencies: total.lags,
        verdict,
        more,
        ..Figure::new("log/fanout", total.read.records, total.read.bytes, total.time)
    };
    (wrote, read)
}

/// Waits until a follower has read all records, and adds what it saw.
fn follow_to_end(mut follower: Follower, count: u64, more: &mut Map<String, Value>) -> Outcome {
    let followed = follower.read_to(count)?;
    if followed.tally.records != count {
        let read = followed.tally.records;
        return Err(Failure::failed(format!("the follower read {read} of {count} records")));
    }
    let lags = follower.take_lags();
    followed.insert_into(more);
    more.extend(keys([
        ("follower_lag_p50_us", json!(lags.quantile_us(0.5))),
        ("follower_lag_p99_us", json!(lags.quantile_us(0.99))),
        ("follower_lag_max_us", json!(lags.max_us())),
        ("follower_deliveries", json!(lags.count())),
    ]));
    Ok(())
}

/// The rate that `--rate` asks for, in bytes per second; `None` if there is no limit.
fn wanted_rate(arguments: &LogBenchArguments) -> Option<f64> {
    arguments.rate.filter(|rate| *rate > 0).map(|rate| rate as f64)
}

/// The parameters of this benchmark beside the options of the log.
fn own_params(arguments: &LogBenchArguments, readers: u32, total: &Total) -> Map<String, Value> {
    let kept = wanted_rate(arguments)
        .map(|rate| total.wrote.bytes as f64 / total.wrote.time.as_secs_f64() / rate);
    keys([
        ("readers", json!(readers)),
        ("writers", json!(1)),
        ("batch", json!(arguments.batch())),
        ("rate", json!(arguments.rate)),
        ("rate_kept", json!(kept.map(|kept| rounded(kept, 4)))),
        ("follower", json!(arguments.follower)),
        ("verify", json!(arguments.verify().name())),
        ("blocking", json!(arguments.blocking)),
        ("callers", json!(if arguments.blocking { "threads" } else { "tasks" })),
        ("workers", json!(WORKER_THREADS)),
        ("count", json!(arguments.count)),
        ("seconds", json!(arguments.count.is_none().then(|| seconds(arguments)))),
        ("slices", json!(total.slices)),
        ("stream_bytes", json!(size_of::<LogStream>())),
    ])
}

fn seconds(arguments: &LogBenchArguments) -> f64 {
    arguments.seconds.unwrap_or(SECONDS)
}

/// The readers, the writer and their runtime.
struct Fanout<'a> {
    /// Another process that reads the same log.
    follower: Option<Follower>,
    tail_readers: Arc<TailReaders>,
    /// `None` while a slice runs.
    open_loop: Option<OpenLoop>,
    /// Whether the writer has a thread of its own.
    blocking: bool,
    runtime: Runtime,
    dir: &'a Path,
    tasks: Vec<JoinHandle<()>>,
}

/// The result of the timed part.
#[derive(Debug)]
struct Total {
    wrote: WrittenRecords,
    read: Tally,
    /// The time from the first append to the last delivery.
    time: Duration,
    used: ResourceUse,
    latencies: Latencies,
    lags: Latencies,
    slices: u64,
}

impl Fanout<'_> {
    /// Starts the readers and waits until all are idle. Returns the bytes of heap that they use.
    fn start_readers(&mut self, log: &Log, durable_times: Arc<DurableTimes>) -> Outcome<u64> {
        let log_failure = |error| Failure::from_log(&error, self.dir);
        let (registered, is_registered) = std::sync::mpsc::sync_channel::<()>(1);
        let watched = log.clone();
        self.runtime.spawn(async move {
            // The readers and the writer get the same error and report it.
            let _ = durable_times::watch(watched, durable_times, move || drop(registered)).await;
        });
        // Returns when the sender is dropped.
        let _ = is_registered.recv();
        let before = allocations::live_bytes();
        self.tail_readers.name_goal(0, false);
        self.tail_readers
            .spawn(log, self.runtime.handle(), &mut self.tasks)
            .map_err(log_failure)?;
        self.runtime.block_on(self.tail_readers.wait_for_goal(CATCH_UP_TIMEOUT))?;
        Ok(allocations::live_bytes().saturating_sub(before))
    }

    /// Warms up, and runs the timed part.
    fn measure(&mut self, arguments: &LogBenchArguments, floor: &mut Floor) -> Outcome<Total> {
        let batch = u64::from(arguments.batch());
        let total_seconds = seconds(arguments);
        let part = |part: f64| match arguments.count {
            Some(count) => Until::Records(((count as f64 * part).ceil() as u64).max(1)),
            None => Until::Elapsed(Duration::from_secs_f64(total_seconds * part)),
        };
        let idle = arguments.rate == Some(0);
        let warm_up = if idle { Until::Records(batch) } else { part(WARM_UP_PART) };
        let mut total = Total::none();
        self.slice(warm_up, false, &mut Total::none())?;
        if let Some(follower) = &self.follower {
            drop(follower.take_lags());
        }
        resources::reset_peak();
        let begin = Instant::now();
        let halfway = |total: &Total| match arguments.count {
            Some(count) => total.wrote.records as f64 / count as f64,
            None => begin.elapsed().as_secs_f64() / total_seconds,
        };
        let mut sampled = false;
        loop {
            if idle {
                std::thread::sleep(IDLE_INTERVAL);
            }
            let slices = u64::from(SLICE_COUNT);
            let left =
                arguments.count.map(|count| count.saturating_sub(total.wrote.records).max(1));
            let last = match left {
                Some(left) if idle => left <= batch,
                None if idle => begin.elapsed().as_secs_f64() >= total_seconds,
                _ => total.slices + 1 == slices,
            };
            let until = match left {
                _ if idle => Until::Records(batch.min(left.unwrap_or(batch))),
                Some(left) if last => Until::Records(left),
                _ => part(1.0 / f64::from(SLICE_COUNT)),
            };
            self.slice(until, last, &mut total)?;
            if last {
                return Ok(total);
            }
            if !sampled && (!idle || halfway(&total) >= 0.5) {
                sampled = true;
                floor.sample()?;
            }
        }
    }

    /// Runs the writer, and waits until every reader has received every record.
    fn slice(&mut self, until: Until, last: bool, total: &mut Total) -> Outcome {
        let log_failure = |error| Failure::from_log(&error, self.dir);
        let Some(mut open_loop) = self.open_loop.take() else {
            unreachable!("there between slices")
        };
        let tail_readers = Arc::clone(&self.tail_readers);
        let (begin, snapshot) = (Instant::now(), Snapshot::now());
        let work = async move {
            let wrote = open_loop.slice(until, |seq| tail_readers.name_goal(seq, last)).await;
            (open_loop, wrote)
        };
        let (mut open_loop, wrote) = if self.blocking {
            self.runtime.block_on(work)
        } else {
            let ended = self.runtime.block_on(self.runtime.spawn(work));
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
        };
        let wrote = wrote.map_err(log_failure)?;
        let read = self.runtime.block_on(self.tail_readers.wait_for_goal(CATCH_UP_TIMEOUT))?;
        let used = ResourceUse { resident: resources::peak(), ..snapshot.used() };
        total.time += begin.elapsed();
        total.latencies.merge(&open_loop.take_latencies());
        self.open_loop = Some(open_loop);
        let readers = self.tasks.len() as u64;
        // Each reader has to have read everything.
        if (read.records, read.bytes) != (wrote.records * readers, wrote.bytes * readers) {
            return Err(Failure::failed(format!(
                "{readers} readers read {} records of {} bytes in total instead of {} records of {} bytes each",
                read.records, read.bytes, wrote.records, wrote.bytes
            )));
        }
        total.wrote = total.wrote.and(wrote);
        total.read = total.read.and(read);
        total.used = total.used.and(used);
        total.lags.merge(&self.tail_readers.take_lags());
        total.slices += 1;
        Ok(())
    }

    /// Waits for the tasks to end after the last record.
    fn end(&mut self) -> Outcome {
        for task in self.tasks.drain(..) {
            let ended =
                self.runtime.block_on(async { tokio::time::timeout(CATCH_UP_TIMEOUT, task).await });
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
                Err(_) => return Err(Failure::failed("a reader did not end in time")),
            }
        }
        Ok(())
    }
}

impl Total {
    fn none() -> Self {
        Self {
            wrote: WrittenRecords::default(),
            read: Tally::default(),
            time: Duration::ZERO,
            used: ResourceUse::default(),
            latencies: Latencies::new(),
            lags: Latencies::new(),
            slices: 0,
        }
    }
}
