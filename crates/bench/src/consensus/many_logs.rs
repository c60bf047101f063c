//! Many logs of one manager: finding an open one, and one durable accept to each of them.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use esker_consensus::{
    AcceptError, Error, LogGuard, LogManager, Mode, OpenError, Options, Slot, StorageError,
};
use serde_json::json;

use super::compare::stamp_value;
use super::consensus_arguments::BALLOT;
use super::timed::{Bench, Measurement};
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, ResourceUse, Snapshot};
use esker_command::exit::{Failure, Outcome};

/// Logs that get an accept each, without `--logs`.
const DEFAULT_LOGS: u64 = 1000;
/// Rounds that are run at least.
const ROUNDS_MIN: u64 = 5;
/// Open logs among which one is looked up, without `--logs`.
const DEFAULT_OPEN_LOGS: u64 = 256;
/// Lookups of each thread.
const THREAD_LOOKUPS: u64 = 5_000_000;

/// A key of 16 bytes.
fn key(log: u64) -> [u8; 16] {
    let mut key = *b"table: ________.";
    key[7..15].copy_from_slice(&log.to_be_bytes());
    key
}

/// Runs `many-logs` in a process of its own, so that its memory is its own, and in this directory.
pub fn in_child(dir: &Path) -> Outcome {
    let failed = |error| Failure::from_io("run a process for the many logs", &error);
    let exe = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(exe);
    child.args(std::env::args_os().skip(1)).arg("--in-child").arg(dir);
    match child.status().map_err(failed)?.code() {
        Some(0) => Ok(()),
        _ => Err(Failure::failed("the process for the many logs failed".to_owned())),
    }
}

impl Bench<'_> {
    fn manager(&self, dir: &Path, max_open: u64) -> Outcome<(LogManager, Options)> {
        let chosen = self.arguments.options(Mode::Durable, true);
        let builder = LogManager::builder(dir).max_open(max_open as usize);
        let mut options = builder.current_options().clone();
        let reserve = options.log.reserve;
        options.log = chosen.log;
        options.log.reserve = reserve;
        let manager = builder.options(options.clone()).open();
        Ok((manager.map_err(|error| Failure::from_consensus(error, dir))?, options))
    }

    /// Finds open logs: each thread one of its own, or all the same one. Afterwards, each key has
    /// to lead to the log with its value.
    pub fn manager_get(&self, threads: usize, same: bool) -> Outcome<Measurement> {
        let dir = self.dir.join(format!("manager-get-{threads}-{same}"));
        let open = self.arguments.logs.unwrap_or(DEFAULT_OPEN_LOGS);
        let (manager, options) = self.manager(&dir, open)?;
        let accepted: Result<Vec<_>, Error> = (0..open)
            .map(|log| Ok(manager.get(key(log))?.accept(Slot(0), BALLOT, &key(log))?))
            .collect();
        for ticket in accepted.map_err(Failure::in_consensus_log(&dir))? {
            ticket.blocking_wait().map_err(Failure::in_consensus_log(&dir))?;
        }
        let each = self.arguments.count.unwrap_or(THREAD_LOOKUPS);
        let (time, latencies, used) = self.timed(threads, each, |_, n| {
            let log = if same { 0 } else { n % threads as u64 };
            let guard = manager.get(key(log))?;
            if guard.key() == key(log) { Ok(()) } else { Err(StorageError::Closed.into()) }
        })?;
        for number in 0..open {
            let log = manager.get(key(number)).map_err(Failure::in_consensus_log(&dir))?;
            let guard = log.pin();
            let entry = log.read(Slot(0), &guard).map_err(Failure::in_consensus_log(&dir))?;
            if entry.value() != key(number) {
                return Err(Failure::failed(format!("log {number} has the value of another one")));
            }
        }
        let stats = manager.get(key(0)).map_err(Failure::in_consensus_log(&dir))?.stats().log_stats;
        if manager.stats().map_err(Failure::in_consensus_log(&dir))?.active_references != 0 {
            return Err(Failure::failed("a reference is left".to_owned()));
        }
        self.end_manager(&manager, &dir)?;
        let (bench, ops) = ("consensus/manager-get", each * threads as u64);
        let outcome = (time, latencies, used);
        let mut measured = self.measured(bench, (&options, &stats), threads, ops, outcome);
        measured.bytes = ops * key(0).len() as u64;
        measured.params.insert("size".into(), json!(key(0).len()));
        measured.params.insert("logs".into(), json!(open));
        measured.params.insert("keys".into(), json!(if same { "same" } else { "different" }));
        Ok(measured)
    }

    /// Rounds of one durable accept to each of many open logs, until the last has resolved.
    pub fn many_logs(&self) -> Outcome<Measurement> {
        let dir = self.dir.join("many-logs");
        let count = self.arguments.logs.unwrap_or(DEFAULT_LOGS);
        let (manager, options) = self.manager(&dir, count)?;
        let logs: Result<Vec<LogGuard>, OpenError> =
            (0..count).map(|log| manager.get(key(log))).collect();
        let logs = logs.map_err(Failure::in_consensus_log(&dir))?;
        let mut value = vec![0; self.arguments.size as usize];
        let mut round = |slot: u64| -> Result<Duration, Error> {
            stamp_value(slot, &mut value);
            let begin = Instant::now();
            let tickets: Result<Vec<_>, AcceptError> =
                logs.iter().map(|log| log.accept(Slot(slot), BALLOT, &value)).collect();
            for ticket in tickets? {
                ticket.blocking_wait()?;
            }
            Ok(begin.elapsed())
        };
        round(0).map_err(Failure::in_consensus_log(&dir))?;
        let (max_rounds, max_time) = self.limits(count);
        let (mut latencies, mut time, mut rounds) = (Latencies::new(), Duration::ZERO, 0u64);
        let (begin, snapshot) = (Instant::now(), Snapshot::now());
        resources::reset_peak();
        while rounds < ROUNDS_MIN || (rounds < max_rounds && begin.elapsed() < max_time) {
            rounds += 1;
            let took = round(rounds).map_err(Failure::in_consensus_log(&dir))?;
            latencies.add(took);
            time += took;
        }
        let used = ResourceUse { resident: resources::peak(), ..snapshot.used() };
        for log in &logs {
            let guard = log.pin();
            for slot in 0..=rounds {
                stamp_value(slot, &mut value);
                let entry =
                    log.read(Slot(slot), &guard).map_err(Failure::in_consensus_log(&dir))?;
                if entry.value() != value {
                    return Err(Failure::failed(format!("slot {slot} has another value")));
                }
            }
        }
        let stats = logs[0].stats().log_stats;
        drop(logs);
        self.end_manager(&manager, &dir)?;
        let outcome = (time, latencies, used);
        let bench = "consensus/many-logs";
        let mut measured = self.measured(bench, (&options, &stats), 1, rounds, outcome);
        measured.bytes = rounds * count * u64::from(self.arguments.size);
        measured.params.insert("logs".into(), json!(count));
        measured.params.insert("placement".into(), json!("separate"));
        measured.params.insert("latencies".into(), json!("of whole rounds"));
        Ok(measured)
    }

    fn end_manager(&self, manager: &LogManager, dir: &Path) -> Outcome {
        manager.close_all().map_err(|error| Failure::from_consensus(error, dir))?;
        if self.arguments.keep {
            return Ok(());
        }
        std::fs::remove_dir_all(dir)
            .map_err(|error| Failure::from_io(format_args!("remove {}", dir.display()), &error))
    }
}
