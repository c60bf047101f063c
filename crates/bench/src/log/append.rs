//! `log/append` and `log/append-async`: how fast records become durable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_log::Log;
use serde_json::{Value, json};

use crate::load::callers::{Callers, Slice, Work};
use crate::load::no_disk::NoDisk;
use crate::load::tasks::WORKERS;
use crate::log::arguments::LogBenchArguments;
use crate::log::plan::Plan;
use crate::machine::floor::Floor;
use crate::measure::figure::{Figure, Shape, Summary, Verdict};
use crate::records::readback::{self, Compared};
use crate::workdir::Workdir;
use esker_command::exit::{Failure, Outcome, complain};

/// Runs, reads back, prints.
pub fn run(arguments: &LogBenchArguments) -> Outcome {
    let workdir = Workdir::make(arguments.dir.as_deref(), arguments.keep)?;
    let dir = workdir.log();
    let of_log = |error| Failure::of_log(&error, &dir);
    let mut options = arguments.options();
    let switch = arguments.no_disk.then(|| {
        let (disk, switch) = NoDisk::around(Arc::clone(&options.disk));
        options.disk = disk;
        switch
    });
    let recipe = arguments.recipe();
    let work = Work {
        writers: arguments.writers,
        batch: arguments.batch(),
        blocking: arguments.blocking,
        pipelined: arguments.pipelined,
        delay: Duration::from_millis(arguments.delay),
    };

    let mut floor = Floor::prepare(&workdir.floor())?;
    floor.sample()?;
    let begin = Instant::now();
    let log = Log::builder(&dir).options(options.clone()).open().map_err(of_log)?;
    report_opening(&log, begin.elapsed(), arguments.json);
    if let Some(switch) = switch {
        switch.set();
    }
    let mut callers = Callers::new(&log, work, &recipe)?;
    let plan = Plan::of(arguments, arguments.writers);
    callers.run(plan.warm_up).map_err(of_log)?;
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
        let slice = callers.run(*until).map_err(of_log)?;
        total = Slice {
            ops: total.ops + slice.ops,
            bytes: total.bytes + slice.bytes,
            time: total.time + slice.time,
            used: total.used.and(slice.used),
        };
    }
    floor.sample()?;
    let (latencies, counts) = (callers.take_latencies(), callers.counts());
    let stats = log.stats();
    drop(callers);
    log.close().map_err(of_log)?;

    let mut params = arguments.params(&options);
    let mut put = |name: &str, value: Value| {
        params.insert(name.into(), value);
    };
    put("writers", json!(arguments.writers));
    put("batch", json!(arguments.batch()));
    put("blocking", json!(arguments.blocking));
    put("callers", json!(if arguments.blocking { "threads" } else { "tasks" }));
    put("workers", if arguments.blocking { Value::Null } else { json!(WORKERS) });
    put("pipelined", json!(arguments.pipelined));
    put("latency_of_every", json!(work.timed_every()));
    put("count", json!(arguments.count));
    put("seconds", json!(plan.seconds));
    put("slices", json!(plan.slices.len()));
    put("delay_ms", json!(arguments.delay));
    put("readers", json!(0));
    put("no_disk", json!(arguments.no_disk));
    put("dir", json!(dir.parent()));
    put("disk", json!(stats.disk));
    put("direct", json!(stats.direct));
    put("dsync", json!(stats.dsync));
    put("commits", json!(stats.commits));
    put("syncs", json!(stats.syncs));

    let compared = if arguments.no_disk {
        None
    } else {
        let compared = readback::compare(&dir, &options, &recipe, arguments.writers)?;
        compared.ends_with(&counts)?;
        put("compared", json!(compared.records));
        Some(compared)
    };
    let bench = if arguments.pipelined { "log/append-async" } else { "log/append" };
    Figure {
        summary: Some(Summary {
            bench: format!(
                "{} buffers of {} bytes, {} disk, queue depth {}, 0 readers, delay {} ms",
                options.buffers,
                options.buffer_size,
                if arguments.no_disk { "no" } else { stats.disk },
                arguments.queue_depth().map_or("none".into(), |depth| depth.to_string()),
                arguments.delay
            ),
            worker: format!(
                "{} records of {} bytes in batches of {}, {:.1} MB",
                total.ops,
                params["size"],
                arguments.batch(),
                total.bytes as f64 / 1e6
            ),
            readers: compared.as_ref().map_or("none".into(), read_back),
        }),
        params: Value::Object(params),
        latencies,
        used: total.used,
        floor: floor.medians(),
        verdict: Verdict::right_if(compared.is_some()),
        ..Figure::of(bench, total.ops, total.bytes, total.time)
    }
    .print(arguments.json, Shape::Rate)
}

/// Prints a summary of the log at opening, without `--json`.
fn report_opening(log: &Log, took: Duration, json: bool) {
    if json {
        return;
    }
    let metadata = log.metadata();
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
fn read_back(compared: &Compared) -> String {
    let seconds = compared.time.as_secs_f64().max(1e-9);
    format!(
        "{} records read back in {seconds:.3} s, {:.0} records/s, {:.1} MB/s",
        compared.records,
        compared.records as f64 / seconds,
        compared.bytes as f64 / seconds / 1e6
    )
}
