//! `consensus/recover`: how long opening takes, after a clean close and after a kill.
//!
//! Another process builds the log. It is killed with SIGKILL in the middle of writing promises, so
//! that the log has exactly the entries that were asked for, and every one has to be there. Opening
//! mends what a kill left: so each opening after a kill is of a copy.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use esker_consensus::{ConsensusLog, Mode};
use esker_log::PriorShutdown;
use serde_json::{Value, json};

use super::arguments::{ConsensusBenchArguments, circumstances};
use super::compare::compare;
use crate::bench::arguments::After;
use crate::bench::machine::floor::Floor;
use crate::bench::measure::figure::{Figure, Shape};
use crate::bench::measure::latency::Latencies;
use crate::bench::measure::resources::{self, Mark, Used};
use crate::bench::page_cache::forget_pages;
use crate::bench::workdir::Workdir;
use crate::exit::{Failure, Outcome};

/// How often each opening is measured.
const TIMES: u64 = 3;

/// Builds, kills or closes, opens, reads back, prints.
pub fn run(arguments: &ConsensusBenchArguments, workdir: &Workdir, floor: &mut Floor) -> Outcome {
    for after in [After::Close, After::Kill] {
        let built = workdir.log().join(format!("recover-{}", after.name()));
        build(arguments, &built, after)?;
        let options = arguments.options(Mode::Volatile, true);
        let (mut latencies, mut time, mut used) =
            (Latencies::new(), Duration::ZERO, Used::default());
        let (mut cold, mut replayed) = (true, Vec::new());
        let mut params = arguments.params(&options);
        for round in 0..TIMES {
            let dir = match after {
                After::Close => built.clone(),
                After::Kill => copy(&built)?,
            };
            cold &= forget_pages(&dir);
            resources::reset_peak();
            let (begin, mark) = (Instant::now(), Mark::now());
            let log = ConsensusLog::open(&dir, options.clone())
                .map_err(|e| Failure::of_consensus(&e, &dir))?;
            let took = begin.elapsed();
            used = used.and(Used { resident: resources::peak(), ..mark.used() });
            latencies.add(took);
            time += took;
            let stats = log.stats();
            replayed.push(stats.since_checkpoint);
            circumstances(&mut params, &stats.log_stats);
            params.insert("disk_bytes".into(), json!(stats.log.disk_bytes));
            let expected =
                if after == After::Close { PriorShutdown::Clean } else { PriorShutdown::Unclean };
            if log.recovery().prior_shutdown != expected {
                return Err(Failure::failed(format!(
                    "the log was found {:?}",
                    log.recovery().prior_shutdown
                )));
            }
            let there = log.committed_range().map_or(0, |range| range.count);
            if there != arguments.entries {
                return Err(Failure::damaged(format!(
                    "{there} of {} durable commits are there after the {}",
                    arguments.entries,
                    after.name()
                )));
            }
            if round + 1 == TIMES && compare(&log, arguments.size as usize, &dir)? != there {
                return Err(Failure::failed("fewer values were read back than were committed"));
            }
            log.close().map_err(|error| Failure::of_consensus(&error, &dir))?;
            if after == After::Kill {
                remove(&dir)?;
            }
        }
        floor.sample()?;
        let mut put = |name: &str, value: Value| {
            params.insert(name.into(), value);
        };
        put("after", json!(after.name()));
        put("entries", json!(arguments.entries));
        put("openings", json!(TIMES));
        put("records_replayed", json!(replayed));
        put("threads", json!(1));
        put("page_cache", json!(if cold { "segments dropped by advice" } else { "kept" }));
        put("ops", json!("entries that are there after each opening"));
        let entries = TIMES * arguments.entries;
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
            remove(&built)?;
        }
    }
    Ok(())
}

fn remove(dir: &Path) -> Outcome {
    let reported = |error| Failure::of_io(format_args!("remove {}", dir.display()), &error);
    std::fs::remove_dir_all(dir).map_err(reported)
}

/// The log once more, beside it.
fn copy(built: &Path) -> Outcome<PathBuf> {
    let dir = built.with_extension("copy");
    let reported = |error| Failure::of_io(format_args!("copy {}", built.display()), &error);
    std::fs::create_dir(&dir).map_err(reported)?;
    for entry in std::fs::read_dir(built).map_err(reported)? {
        let entry = entry.map_err(reported)?;
        std::fs::copy(entry.path(), dir.join(entry.file_name())).map_err(reported)?;
        // What is dirty cannot be dropped from the page cache.
        File::open(dir.join(entry.file_name()))
            .and_then(|file| file.sync_all())
            .map_err(reported)?;
    }
    Ok(dir)
}

/// Has another process commit what was asked for, durably, and end as it shall.
fn build(arguments: &ConsensusBenchArguments, dir: &Path, then: After) -> Outcome {
    let failed = |what: &str| Failure::failed(format!("the process that builds the log {what}"));
    let of_io = |error: &std::io::Error| Failure::of_io("start the builder", error);
    let program = std::env::current_exe().map_err(|error| of_io(&error))?;
    let writing = &arguments.writing;
    let mut child = Command::new(program)
        .args(["consensus", "bench-build"])
        .arg(dir)
        .arg(format!("--entries={}", arguments.entries))
        .arg(format!("--size={}", arguments.size))
        .arg(format!("--then={}", then.name()))
        .arg(format!("--segment-size={}", writing.options().segment_size))
        .arg(format!("--direct={}", writing.direct.name()))
        .arg(format!("--dsync={}", writing.dsync.unwrap_or_default().name()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| of_io(&error))?;
    // Held until the end: the builder ends when this is closed.
    let _leash = child.stdin.take();
    let Some(out) = child.stdout.take() else { return Err(failed("has no output")) };
    let mut line = String::new();
    let reported = BufReader::new(out).read_line(&mut line);
    if reported.ok().and_then(|_| line.trim().parse().ok()) != Some(arguments.entries) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(failed("ended early"));
    }
    if then == After::Kill {
        std::thread::sleep(Duration::from_millis(10));
        child.kill().map_err(|error| Failure::of_io("kill the builder", &error))?;
    }
    let status = child.wait().map_err(|error| Failure::of_io("wait for the builder", &error))?;
    if then == After::Close && !status.success() {
        return Err(failed("failed"));
    }
    Ok(())
}
