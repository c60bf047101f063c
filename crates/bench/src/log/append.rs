//! `log/append` and `log/append-async`: how fast records become durable.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_log::{Log, Options};
use serde_json::{Map, Value, json};

use crate::load::callers::{Callers, Slice, Workload};
use crate::load::no_disk::NoDisk;
use crate::load::tasks::WORKER_THREADS;
use crate::log::log_arguments::LogBenchArguments;
use crate::log::plan::Plan;
use crate::machine::floor::Floor;
use crate::measure::figure::{Figure, Shape, Summary, Verdict};
use crate::measure::keys::keys;
use crate::records::readback::{self, Comparison};
use crate::workdir::Workdir;
use esker_command::exit::{Failure, Outcome, complain};

/// Runs, reads back, prints.
pub fn run(arguments: &LogBenchArguments) -> Outcome {
    let workdir = Workdir::make(arguments.dir.as_deref(), arguments.keep)?;
    let dir = workdir.log();
    let log_failure = |error| Failure::from_log(&error, &dir);
    let mut options = arguments.options();
    let switch = arguments.no_disk.then(|| {
        let (disk, switch) = NoDisk::around(Arc::clone(&options.disk));
        options.disk = disk;
        switch
    });
    let recipe = arguments.recipe();
    let work = Workload {
        writers: arguments.writers,
        batch: arguments.batch(),
        blocking: arguments.blocking,
        pipelined: arguments.pipelined,
        delay: Duration::from_millis(arguments.delay),
    };

    let mut floor = Floor::prepare(&workdir.floor())?;
    floor.sample()?;
    let begin = Instant::now();
    let log = Log::builder(&dir)
        .options(options.clone())
        .open()
        .map_err(|error| log_failure(error.into()))?;
    report_opening(&log, begin.elapsed(), arguments.json);
    if let Some(switch) = switch {
        switch.set();
    }
    let mut callers = Callers::new(&log, work, &recipe)?;
    let plan = Plan::new(arguments, arguments.writers);
    let total = append(arguments, &dir, &mut callers, &plan, &mut floor)?;
    floor.sample()?;
    let (latencies, counts) = (callers.take_latencies(), callers.counts());
    let stats = log.stats();
    drop(callers);
    log.close().map_err(|error| log_failure(error.into()))?;

    let mut params = arguments.params(&options);
    params.extend(own_params(arguments, &plan, work));
    params.insert("dir".into(), json!(dir.parent()));
    params.extend(keys([
        ("disk", json!(stats.disk)),
        ("direct", json!(stats.direct)),
        ("dsync", json!(stats.dsync)),
        ("commits", json!(stats.commits)),
        ("syncs", json!(stats.syncs)),
    ]));

    let compared = if arguments.no_disk {
        None
    } else {
        let compared = readback::compare(&dir, &options, &recipe, arguments.writers)?;
        compared.ends_with(&counts)?;
        params.insert("compared".into(), json!(compared.records));
        Some(compared)
    };
    let bench = if arguments.pipelined { "log/append-async" } else { "log/append" };
    Figure {
        summary: Some(summary(arguments, &options, stats.disk, &total, compared.as_ref())),
        params: Value::Object(params),
        latencies,
        used: total.used,
        floor: floor.medians(),
        verdict: Verdict::right_if(compared.is_some()),
        ..Figure::new(bench, total.ops, total.bytes, total.time)
    }
    .print(arguments.json, Shape::Rate)
}

/// Lets the callers append: a warm-up, then the timed slices with a floor sample between two.
fn append(
    arguments: &LogBenchArguments,
    dir: &Path,
    callers: &mut Callers,
    plan: &Plan,
    floor: &mut Floor,
) -> Outcome<Slice> {
    let log_failure = |error| Failure::from_log(&error, dir);
    callers.run(plan.warm_up).map_err(log_failure)?;
    callers.take_latencies();
    let mut total = Slice::default();
    for (index, until) in plan.slices.iter().enumerate() {
        if index > 0 {
            floor.sample()?;
        }
        if !arguments.json {
            complain(&format!(
                "part {} of {}: {} records so far",
                index + 1,
                plan.slices.len(),
                total.ops
            ));
        }
        let slice = callers.run(*until).map_err(log_failure)?;
        total = Slice {
            ops: total.ops + slice.ops,
            bytes: total.bytes + slice.bytes,
            time: total.time + slice.time,
            used: total.used.and(slice.used),
        };
    }
    Ok(total)
}

/// The parameters of this benchmark beside the options of the log.
fn own_params(arguments: &LogBenchArguments, plan: &Plan, work: Workload) -> Map<String, Value> {
    keys([
        ("writers", json!(arguments.writers)),
        ("batch", json!(arguments.batch())),
        ("blocking", json!(arguments.blocking)),
        ("callers", json!(if arguments.blocking { "threads" } else { "tasks" })),
        ("workers", if arguments.blocking { Value::Null } else { json!(WORKER_THREADS) }),
        ("pipelined", json!(arguments.pipelined)),
        ("latency_of_every", json!(work.timed_every())),
        ("count", json!(arguments.count)),
        ("seconds", json!(plan.seconds)),
        ("slices", json!(plan.slices.len())),
        ("delay_ms", json!(arguments.delay)),
        ("readers", json!(0)),
        ("no_disk", json!(arguments.no_disk)),
    ])
}

/// The lines of text around the rate of the writers.
fn summary(
    arguments: &LogBenchArguments,
    options: &Options,
    disk: &str,
    total: &Slice,
    compared: Option<&Comparison>,
) -> Summary {
    Summary {
        bench: format!(
            "{} buffers of {} bytes, {} disk, queue depth {}, 0 readers, delay {} ms",
            options.buffers,
            options.buffer_size,
            if arguments.no_disk { "no" } else { disk },
            arguments.queue_depth().map_or("none".into(), |depth| depth.to_string()),
            arguments.delay
        ),
        worker: format!(
            "{} records of {} bytes in batches of {}, {:.1} MB",
            total.ops,
            arguments.size_name(),
            arguments.batch(),
            total.bytes as f64 / 1e6
        ),
        readers: compared.map_or("none".into(), read_back),
    }
}

/// Prints a summary of the log at opening, without `--json`.
fn report_opening(log: &Log, took: Duration, json: bool) {
    if json {
        return;
    }
    let metadata = log.storage().metadata();
    complain(&format!(
        "opened in {:.1} ms: {} records, {} to {}, {} bytes",
        took.as_secs_f64() * 1e3,
        metadata.records,
        metadata.after.0 + u64::from(metadata.records > 0),
        metadata.durable.0,
        metadata.disk_bytes
    ));
}

/// Describes the comparison after the run.
fn read_back(compared: &Comparison) -> String {
    let seconds = compared.time.as_secs_f64().max(1e-9);
    format!(
        "{} records read back in {seconds:.3} s, {:.0} records/s, {:.1} MB/s",
        compared.records,
        compared.records as f64 / seconds,
        compared.bytes as f64 / seconds / 1e6
    )
}
