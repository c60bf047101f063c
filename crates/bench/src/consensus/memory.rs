//! The works in memory: accepting, committing without a sync, reading, scanning.

use std::time::{Duration, Instant};

use esker_consensus::{ConsensusLog, Error, Mode, Slot};
use serde_json::json;

use super::compare::stamp_value;
use super::consensus_arguments::BALLOT;
use super::timed::{Bench, Measurement};
use crate::measure::latency::Latencies;
use crate::measure::resources::ResourceUse;
use esker_command::exit::{Failure, Outcome};

/// Entries of the log that the reading works read.
const LOG_ENTRIES: u64 = 10_000;
/// Reads under one guard.
const UNDER_ONE_GUARD: u64 = 1024;

impl Bench<'_> {
    /// Measures accepts in the steady state. The commits and the checkpoint between two rounds free
    /// memory and are not timed. The first rounds are not counted.
    pub fn accept(&self, threads: usize) -> Outcome<Measurement> {
        const ROUND_COUNT: u64 = 10;
        const WARM_UP: u64 = 5;
        let mode = Mode::Volatile;
        let mut options = self.arguments.options(mode, false);
        let capacity = options.mutable_size / u64::from(self.arguments.size).max(64);
        let each = (self.arguments.count.unwrap_or(600_000) / WARM_UP).min(capacity).max(2) / 2 * 2;
        // Committed values are evicted early, which frees memory for the next round.
        options.cache_size = each * u64::from(self.arguments.size).max(64);
        let (log, dir) = self.open(&format!("accept-{threads}"), options.clone())?;
        let mut outcome = (Duration::ZERO, Latencies::new(), ResourceUse::default());
        for round in 0..ROUND_COUNT {
            let (time, latencies, used) =
                self.timed(threads, each / threads as u64, |value, n| {
                    let slot = round * each + n;
                    stamp_value(slot, value);
                    Ok(log.accept(Slot(slot), BALLOT, value)?.blocking_wait()?)
                })?;
            if round >= WARM_UP {
                outcome.0 += time;
                outcome.1.merge(&latencies);
                outcome.2 = outcome.2.and(used);
            }
            log.commit_through(Slot((round + 1) * each - 1))
                .map_err(Failure::in_consensus_log(&dir))?
                .blocking_wait()
                .map_err(Failure::in_consensus_log(&dir))?;
            // Otherwise a checkpoint that those commits made due would run during the next timed
            // round.
            log.maintenance().checkpoint().map_err(Failure::in_consensus_log(&dir))?;
        }
        self.compare_committed(&log, ROUND_COUNT * each)?;
        let metadata = self.end(&log, &dir)?;
        let count = (ROUND_COUNT - WARM_UP) * each;
        let mut measured =
            self.measured("consensus/accept", (&options, &metadata), threads, count, outcome);
        measured.params.insert("rounds".into(), json!(ROUND_COUNT - WARM_UP));
        measured.params.insert("commits_between_rounds".into(), json!("not timed"));
        measured.params.insert("checkpoints_between_rounds".into(), json!("not timed"));
        Ok(measured)
    }

    pub fn accept_commit(&self, threads: usize) -> Outcome<Measurement> {
        let mode = Mode::Volatile;
        let options = self.arguments.options(mode, false);
        let count = self.arguments.count.unwrap_or(2_000_000) / 2 * 2;
        let (log, dir) = self.open(&format!("accept-commit-{threads}"), options.clone())?;
        let outcome = self.timed(threads, count / threads as u64, |value, slot| {
            stamp_value(slot, value);
            log.accept(Slot(slot), BALLOT, value)?.blocking_wait()?;
            Ok(log.commit(Slot(slot), BALLOT).map(drop)?)
        })?;
        self.compare_committed(&log, count)?;
        let metadata = self.end(&log, &dir)?;
        Ok(self.measured("consensus/accept-commit", (&options, &metadata), threads, count, outcome))
    }

    pub fn read(&self, threads: usize, committed: bool) -> Outcome<Measurement> {
        let mode = Mode::Volatile;
        let options = self.arguments.options(mode, true);
        let work = if committed { "read-committed" } else { "read-uncommitted" };
        let (log, dir) = self.open(&format!("{work}-{threads}"), options.clone())?;
        let mut value = vec![0; self.arguments.size as usize];
        for slot in 0..LOG_ENTRIES {
            stamp_value(slot, &mut value);
            log.accept(Slot(slot), BALLOT, &value)
                .map_err(Failure::in_consensus_log(&dir))?
                .blocking_wait()
                .map_err(Failure::in_consensus_log(&dir))?;
        }
        if committed {
            log.commit_through(Slot(LOG_ENTRIES - 1))
                .map_err(Failure::in_consensus_log(&dir))?
                .blocking_wait()
                .map_err(Failure::in_consensus_log(&dir))?;
        }
        // Each operation of the timed part is one guard with all its reads.
        let rounds = self.arguments.count.unwrap_or(16 << 20).div_ceil(UNDER_ONE_GUARD).max(2) / 2;
        let reads = rounds * 2 * UNDER_ONE_GUARD;
        let mut outcome = self.timed(threads, rounds * 2 / threads as u64, |_, round| {
            let guard = log.pin();
            for n in 0..UNDER_ONE_GUARD {
                // A stride coprime to the number of entries visits every entry.
                let slot = Slot((round * UNDER_ONE_GUARD + n) * 7919 % LOG_ENTRIES);
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
        outcome.1 = single_reads(&log, committed).map_err(Failure::in_consensus_log(&dir))?;
        if committed {
            self.compare_committed(&log, LOG_ENTRIES)?;
        } else {
            self.compare_uncommitted(&log, LOG_ENTRIES)?;
        }
        let metadata = self.end(&log, &dir)?;
        let bench =
            if committed { "consensus/read-committed" } else { "consensus/read-uncommitted" };
        let mut measured = self.measured(bench, (&options, &metadata), threads, reads, outcome);
        measured.params.insert("entries".into(), json!(LOG_ENTRIES));
        measured.params.insert("reads_under_one_guard".into(), json!(UNDER_ONE_GUARD));
        measured.params.insert(
            "latencies".into(),
            json!("of 4096 single reads after the timed part, the clock included"),
        );
        Ok(measured)
    }

    pub fn scan(&self) -> Outcome<Measurement> {
        const SCANNED_SLOTS: u64 = 1000;
        let mode = Mode::Volatile;
        let options = self.arguments.options(mode, true);
        let (log, dir) = self.open("scan", options.clone())?;
        let mut value = vec![0; self.arguments.size as usize];
        for slot in 0..SCANNED_SLOTS {
            stamp_value(slot, &mut value);
            log.accept(Slot(slot), BALLOT, &value)
                .map_err(Failure::in_consensus_log(&dir))?
                .blocking_wait()
                .map_err(Failure::in_consensus_log(&dir))?;
        }
        let count = self.arguments.count.unwrap_or(20_000).min(1_000_000);
        let outcome = self.timed(1, count, |_, _| {
            let guard = log.pin();
            let scanned = log.maintenance().scan_uncommitted(&guard)?.len() as u64;
            if scanned == SCANNED_SLOTS { Ok(()) } else { Err(Error::Gap { slot: Slot(scanned) }) }
        })?;
        self.compare_uncommitted(&log, SCANNED_SLOTS)?;
        let metadata = self.end(&log, &dir)?;
        let mut measured =
            self.measured("consensus/scan-1000", (&options, &metadata), 1, count, outcome);
        measured.bytes *= SCANNED_SLOTS;
        measured.params.insert("entries".into(), json!(SCANNED_SLOTS));
        Ok(measured)
    }
}

/// Measures single reads, the clock included.
fn single_reads(log: &ConsensusLog, committed: bool) -> Result<Latencies, Error> {
    let mut latencies = Latencies::new();
    let guard = log.pin();
    for n in 0..4096 {
        let slot = Slot(n * 7919 % LOG_ENTRIES);
        let begin = Instant::now();
        let entry =
            if committed { log.read_committed(slot, &guard)? } else { log.read(slot, &guard)? };
        std::hint::black_box(&entry);
        latencies.add(begin.elapsed());
    }
    Ok(latencies)
}
