//! `consensus/recover`: how long opening takes, after a clean close and after a kill.
//!
//! Another process builds the log. It is killed with SIGKILL in the middle of committing, and what it
//! had reported as durable has to be there.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use esker_consensus::{ConsensusLog, Mode};
use esker_log::Found;
use serde_json::{Value, json};

use super::ConsensusBenchArguments;
use super::compare::compare;
use crate::bench::arguments::After;
use crate::bench::cold::forget_pages;
use crate::bench::figure::{Figure, Shape};
use crate::bench::floor::Floor;
use crate::bench::latency::Latencies;
use crate::bench::place::Place;
use crate::bench::resources::{self, Mark, Used};
use crate::consensus_cmd::failure;
use crate::exit::{Failure, Outcome};

/// How often each opening is measured.
const TIMES: u64 = 3;
/// What the builder commits before each further opening.
const MORE: u64 = 1000;

/// Builds, kills or closes, opens, reads back, prints.
pub fn run(arguments: &ConsensusBenchArguments, place: &Place, floor: &mut Floor) -> Outcome {
    for after in [After::Close, After::Kill] {
        let dir = place.log().join(format!("recover-{}", after.name()));
        let options = arguments.options(Mode::Volatile, true);
        let (mut latencies, mut time, mut used) =
            (Latencies::new(), Duration::ZERO, Used::default());
        let (mut cold, mut entries, mut disk_bytes) = (true, 0, 0);
        for round in 0..TIMES {
            let more = if round == 0 { arguments.entries } else { MORE };
            let least = build(arguments, &dir, more, after)?;
            cold &= forget_pages(&dir);
            resources::reset_peak();
            let (begin, mark) = (Instant::now(), Mark::now());
            let log = ConsensusLog::open(&dir, options.clone()).map_err(|e| failure(&e, &dir))?;
            let took = begin.elapsed();
            used = used.and(Used { resident: resources::peak(), ..mark.used() });
            latencies.add(took);
            time += took;
            let expected = if after == After::Close { Found::Closed } else { Found::Abandoned };
            if log.recovery().found != expected {
                return Err(Failure::failed(format!(
                    "the log was found {:?}",
                    log.recovery().found
                )));
            }
            let there = log.committed_range().map_or(0, |range| range.count);
            if there < least {
                return Err(Failure::damaged(format!(
                    "{there} of {least} durable commits are there after the {}",
                    after.name()
                )));
            }
            entries += there;
            disk_bytes = log.stats().log.disk_bytes;
            if round + 1 == TIMES && compare(&log, arguments.size as usize, &dir)? != there {
                return Err(Failure::failed("fewer values were read back than were committed"));
            }
            log.close().map_err(|error| failure(&error, &dir))?;
        }
        floor.sample()?;
        let mut params = arguments.params(Mode::Volatile, &options);
        let mut put = |name: &str, value: Value| {
            params.insert(name.into(), value);
        };
        put("after", json!(after.name()));
        put("entries", json!(entries / TIMES));
        put("openings", json!(TIMES));
        put("disk_bytes", json!(disk_bytes));
        put("threads", json!(1));
        put("page_cache", json!(if cold { "segments dropped by advice" } else { "kept" }));
        put("ops", json!("entries that are there after each opening"));
        Figure {
            params: Value::Object(params),
            open_ms: Some(latencies.quantile_us(0.5) / 1e3),
            latencies,
            used,
            floor: floor.medians(),
            verified: true,
            ..Figure::of("consensus/recover", entries, entries * u64::from(arguments.size), time)
        }
        .print(arguments.json, Shape::Opening)?;
        if !arguments.keep {
            std::fs::remove_dir_all(&dir).map_err(|error| {
                Failure::of_io(format_args!("remove {}", dir.display()), &error)
            })?;
        }
    }
    Ok(())
}

/// Has another process commit so many slots more, and end as it shall; how many are durable.
fn build(
    arguments: &ConsensusBenchArguments,
    dir: &Path,
    entries: u64,
    then: After,
) -> Outcome<u64> {
    let failed = |what: &str| Failure::failed(format!("the process that builds the log {what}"));
    let of_io = |error: &std::io::Error| Failure::of_io("start the builder", error);
    let program = std::env::current_exe().map_err(|error| of_io(&error))?;
    let mut child = Command::new(program)
        .args(["consensus", "bench-build"])
        .arg(dir)
        .arg(format!("--entries={entries}"))
        .arg(format!("--size={}", arguments.size))
        .arg(format!("--then={}", then.name()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| of_io(&error))?;
    // Held until the end: the builder ends when this is closed.
    let _leash = child.stdin.take();
    let Some(out) = child.stdout.take() else { return Err(failed("has no output")) };
    let mut line = String::new();
    let told = BufReader::new(out).read_line(&mut line);
    let Some(count) = told.ok().and_then(|_| line.trim().parse().ok()) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed("ended early"));
    };
    if then == After::Kill {
        std::thread::sleep(Duration::from_millis(10));
        child.kill().map_err(|error| Failure::of_io("kill the builder", &error))?;
    }
    let status = child.wait().map_err(|error| Failure::of_io("wait for the builder", &error))?;
    if then == After::Close && !status.success() {
        return Err(failed("failed"));
    }
    Ok(count)
}
