//! `log/offsets`: how long it takes to set named offsets of consumers durably.
//!
//! Each work has a log of its own. A caller is a thread that sets its own names, all in one call,
//! and calls again when the call returned. One operation is one call. At the end another handle
//! lists the offsets of the log, and each must be what its caller set last.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_log::{Consumers, Error, Log, ReadOnlyLog, Result, Seq};
use serde_json::{Map, json};

use crate::load::slice::{SliceStart, Until};
use crate::load::threads;
use crate::log::log_arguments::LogBenchArguments;
use crate::log::plan::Plan;
use crate::machine::floor::Floor;
use crate::measure::call_clock::CallClock;
use crate::measure::figure::{Figure, Shape, Verdict, ratio, rounded, time};
use crate::measure::per_thread::PerThread;
use crate::measure::resources::{self, ResourceUse};
use crate::records::payload::mix;
use crate::workdir::Workdir;
use esker_command::exit::{Failure, Outcome, complain};
use esker_command::output;

/// Callers, and names in one call of each.
const WORKS: [(u32, u32); 4] = [(1, 1), (1, 1000), (100, 1), (1000, 1)];
/// The bytes of an offset, without its name.
const OFFSET_BYTES: u64 = 8;

/// Runs every work, reads back, prints.
pub fn run(arguments: &LogBenchArguments) -> Outcome {
    let workdir = Workdir::make(arguments.dir.as_deref(), arguments.keep)?;
    let logs = workdir.log();
    std::fs::create_dir_all(&logs)
        .map_err(|error| Failure::from_io(format_args!("create {}", logs.display()), &error))?;
    let mut floor = Floor::prepare(&workdir.floor())?;
    if !arguments.json {
        output::print(&heading())?;
    }
    for (callers, names) in WORKS {
        let dir = logs.join(format!("{callers}-by-{names}"));
        let figure = measure(arguments, &dir, &mut floor, callers, names)?;
        if arguments.json {
            figure.print(true, Shape::Rate)?;
        } else {
            output::print(&row(&figure, callers, names))?;
        }
    }
    if !arguments.json {
        output::print("p50/sync: the median call, in overwrites of 4 KiB with a sync\n")?;
    }
    Ok(())
}

fn measure(
    arguments: &LogBenchArguments,
    dir: &Path,
    floor: &mut Floor,
    callers: u32,
    names: u32,
) -> Outcome<Figure> {
    let log_failure = |error| Failure::from_log(&error, dir);
    floor.restart();
    floor.sample()?;
    let log = Log::builder(dir)
        .options(arguments.options())
        .open()
        .map_err(|error| log_failure(error.into()))?;
    let plan = Plan::new(arguments, callers);
    let mut work = OffsetCallers::new(&log, arguments.seed, callers, names);
    work.run(plan.warm_up).map_err(log_failure)?;
    work.latencies.take();
    let mut total = Slice::default();
    for (index, until) in plan.slices.iter().enumerate() {
        if index > 0 {
            floor.sample()?;
        }
        if !arguments.json {
            complain(&format!(
                "{}, {} in a call, part {} of {}",
                output::counted(callers.into(), "caller"),
                output::counted(names.into(), "name"),
                index + 1,
                plan.slices.len()
            ));
        }
        let slice = work.run(*until).map_err(log_failure)?;
        total = Slice {
            calls: total.calls + slice.calls,
            seconds: total.seconds + slice.seconds,
            used: total.used.and(slice.used),
        };
    }
    floor.sample()?;
    let stats = log.stats();
    log.close().map_err(|error| log_failure(error.into()))?;
    let compared = compare(dir, &work, arguments.expect_seed.unwrap_or(arguments.seed))?;

    let names_bytes: usize = work.callers.iter().flat_map(|c| &c.names).map(String::len).sum();
    let bytes_of_call = names_bytes as u64 / u64::from(callers) + u64::from(names) * OFFSET_BYTES;
    let params = json!({
        "callers": callers,
        "names_per_call": names,
        "names": compared,
        "count": arguments.count,
        "seconds": plan.seconds,
        "slices": plan.slices.len(),
        "seed": arguments.seed,
        "disk": stats.disk,
        "compared": compared,
    });
    let mut more = Map::new();
    let offsets = (total.calls * u64::from(names)) as f64;
    more.insert("offsets_per_s".into(), json!(rounded(offsets / total.seconds.max(1e-9), 1)));
    Ok(Figure {
        params,
        latencies: work.latencies.take(),
        used: total.used,
        floor: floor.medians(),
        verdict: Verdict::Right,
        more,
        ..Figure::new(
            "log/offsets",
            total.calls,
            total.calls * bytes_of_call,
            Duration::from_secs_f64(total.seconds),
        )
    })
}

/// The calls, the time and the usage of a slice.
#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    calls: u64,
    seconds: f64,
    used: ResourceUse,
}

/// A caller: its names, and how often it set them.
#[derive(Debug)]
struct Caller {
    names: Vec<String>,
    first: u32,
    calls: u64,
}

/// All callers of a log.
#[derive(Debug)]
struct OffsetCallers {
    consumers: Consumers,
    callers: Vec<Caller>,
    latencies: PerThread,
    seed: u64,
}

/// The offset that a call sets for a name.
fn offset(seed: u64, name: u32, call: u64) -> Seq {
    Seq(mix(mix(seed ^ call) ^ u64::from(name)))
}

impl Caller {
    /// Sets all names of this caller.
    fn set(&self, consumers: &Consumers, seed: u64, call: u64) -> Result<()> {
        if let [name] = &self.names[..] {
            return consumers
                .set(name, offset(seed, self.first, call))
                .map(drop)
                .map_err(Into::into);
        }
        let numbered = (self.first..).zip(&self.names);
        consumers
            .set_all(numbered.map(|(n, name)| (name.as_str(), offset(seed, n, call))))
            .map_err(Into::into)
    }

    /// Calls until the slice ends.
    fn repeat(
        &mut self,
        consumers: &Consumers,
        seed: u64,
        start: SliceStart,
        until: Until,
        latencies: &PerThread,
    ) -> Result<()> {
        let (limit, deadline) = until.limits(start.begin);
        let mut clock = CallClock::with_deadline(1, deadline);
        for _ in 0..limit {
            self.set(consumers, seed, self.calls + 1)?;
            self.calls += 1;
            if clock.is_over(|time| latencies.add(time)) {
                break;
            }
        }
        Ok(())
    }
}

impl OffsetCallers {
    fn new(log: &Log, seed: u64, callers: u32, names: u32) -> Self {
        let caller = |caller: u32| {
            let first = caller * names;
            let names = (first..first + names).map(|n| format!("consumer-{n:04}")).collect();
            Caller { names, first, calls: 0 }
        };
        Self {
            consumers: log.consumers(),
            callers: (0..callers).map(caller).collect(),
            latencies: PerThread::shared(callers as usize),
            seed,
        }
    }

    /// Runs all callers until the slice ends.
    fn run(&mut self, until: Until) -> Result<Slice> {
        let before = self.calls();
        resources::reset_peak();
        let (consumers, latencies, seed) = (&self.consumers, &self.latencies, self.seed);
        let work = |caller: &mut Caller, (), start| {
            caller.repeat(consumers, seed, start, until, latencies)
        };
        let (SliceStart { begin, snapshot }, ended) = threads::run(&mut self.callers, |_| (), work)
            .map_err(|error| Error::NoThread(Arc::new(error)))?;
        ended.into_iter().collect::<Result<()>>()?;
        let seconds = begin.elapsed().as_secs_f64();
        let used = ResourceUse { resident: resources::peak(), ..snapshot.used() };
        Ok(Slice { calls: self.calls() - before, seconds, used })
    }

    fn calls(&self) -> u64 {
        self.callers.iter().map(|caller| caller.calls).sum()
    }
}

/// Compares the offsets of the log, read by another handle, with what the callers set last. Returns
/// how many there are.
fn compare(dir: &Path, work: &OffsetCallers, seed: u64) -> Outcome<u64> {
    let log_failure = |error| Failure::from_log(&error, dir);
    let reader = ReadOnlyLog::open(dir).map_err(|error| log_failure(error.into()))?;
    let found = reader.consumers().list().map_err(|error| log_failure(error.into()))?;
    let mut expected: Vec<(&str, Seq)> = Vec::new();
    for caller in &work.callers {
        let numbered = (caller.first..).zip(&caller.names);
        expected.extend(numbered.map(|(n, name)| (name.as_str(), offset(seed, n, caller.calls))));
    }
    if found.len() != expected.len() {
        return Err(Failure::failed(format!(
            "read back {} offsets instead of the {} that were set",
            found.len(),
            expected.len()
        )));
    }
    // Names have the same length, so that their order is that of the callers.
    for ((name, offset), (expected_name, expected)) in found.iter().zip(expected) {
        if name != expected_name || *offset != expected {
            return Err(Failure::failed(format!(
                "read back {name} with offset {offset} instead of {expected_name} with {expected}"
            )));
        }
    }
    Ok(found.len() as u64)
}

fn heading() -> String {
    cells([
        "callers",
        "names/call",
        "calls/s",
        "offsets/s",
        "p50",
        "p99",
        "max",
        "sync",
        "p50/sync",
        "read back",
    ])
}

fn row(figure: &Figure, callers: u32, names: u32) -> String {
    let (latencies, sync) = (&figure.latencies, figure.floor.sync_p50_us);
    let p50 = latencies.quantile_us(0.5);
    let rate = figure.ops as f64 / figure.time.as_secs_f64().max(1e-9);
    let to_sync = ratio(p50, sync).map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"));
    let row = [
        callers.to_string(),
        names.to_string(),
        format!("{rate:.0}"),
        format!("{:.0}", rate * f64::from(names)),
        time(p50),
        time(latencies.quantile_us(0.99)),
        time(latencies.max_us()),
        time(sync),
        to_sync,
        if figure.verdict == Verdict::Right { "equal" } else { "no" }.into(),
    ];
    cells(row.each_ref().map(String::as_str))
}

/// One line of the table.
fn cells(cells: [&str; 10]) -> String {
    const WIDTHS: [usize; 10] = [7, 10, 8, 9, 9, 9, 9, 9, 8, 9];
    let aligned: Vec<_> =
        cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:>width$}")).collect();
    format!("{}\n", aligned.join("  "))
}
