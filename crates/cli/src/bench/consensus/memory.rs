//! The works in memory: accepting, committing without a sync, reading, scanning.

use std::time::{Duration, Instant};

use esker_consensus::{ConsensusLog, Error, Mode};
use serde_json::json;

use super::arguments::BALLOT;
use super::compare::value_of;
use super::timed::{Bench, Measured};
use crate::bench::measure::latency::Latencies;
use crate::bench::measure::resources::Used;
use crate::exit::{Failure, Outcome};

/// Entries that the reading works read.
const READ_FROM: u64 = 10_000;
/// Reads under one guard.
const UNDER_ONE_GUARD: u64 = 1024;

impl Bench<'_> {
    /// In the steady state: rounds of accepts, which are timed, and between them their commits and
    /// a checkpoint, which are not and make room. The first rounds are not counted.
    pub fn accept(&self, threads: usize) -> Outcome<Measured> {
        const ROUNDS: u64 = 10;
        const WARM_UP: u64 = 5;
        let mode = Mode::Volatile;
        let mut options = self.arguments.options(mode, false);
        let room = options.mutable_size / u64::from(self.arguments.size).max(64);
        let each = (self.arguments.count.unwrap_or(600_000) / WARM_UP).min(room).max(2) / 2 * 2;
        // What is committed leaves memory early, so that the next round finds it free.
        options.cache_size = each * u64::from(self.arguments.size).max(64);
        let (log, dir) = self.open("accept", options.clone())?;
        let reported = |error| Failure::of_consensus(&error, &dir);
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
                .map_err(reported)?;
            // One that those commits made due would run beside the next round and be timed with it.
            log.checkpoint().map_err(reported)?;
        }
        self.compare_committed(&log, ROUNDS * each)?;
        let below = self.end(&log, &dir)?;
        let count = (ROUNDS - WARM_UP) * each;
        let mut measured =
            self.measured("consensus/accept", (&options, &below), threads, count, outcome);
        measured.params.insert("rounds".into(), json!(ROUNDS - WARM_UP));
        measured.params.insert("commits_between_rounds".into(), json!("not timed"));
        measured.params.insert("checkpoints_between_rounds".into(), json!("not timed"));
        Ok(measured)
    }

    pub fn accept_commit(&self, threads: usize) -> Outcome<Measured> {
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
        let below = self.end(&log, &dir)?;
        Ok(self.measured("consensus/accept-commit", (&options, &below), threads, count, outcome))
    }

    pub fn read(&self, threads: usize, committed: bool) -> Outcome<Measured> {
        let mode = Mode::Volatile;
        let options = self.arguments.options(mode, true);
        let (log, dir) = self.open("read", options.clone())?;
        let reported = |error| Failure::of_consensus(&error, &dir);
        let mut value = vec![0; self.arguments.size as usize];
        for slot in 0..READ_FROM {
            value_of(slot, &mut value);
            log.accept(slot, BALLOT, &value).and_then(|ticket| ticket.wait()).map_err(reported)?;
        }
        if committed {
            log.commit_through(READ_FROM - 1).and_then(|ticket| ticket.wait()).map_err(reported)?;
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
        outcome.1 = single_reads(&log, committed).map_err(reported)?;
        if committed {
            self.compare_committed(&log, READ_FROM)?;
        } else {
            self.compare_uncommitted(&log, READ_FROM)?;
        }
        let below = self.end(&log, &dir)?;
        let bench =
            if committed { "consensus/read-committed" } else { "consensus/read-uncommitted" };
        let mut measured = self.measured(bench, (&options, &below), threads, reads, outcome);
        measured.params.insert("entries".into(), json!(READ_FROM));
        measured.params.insert("reads_under_one_guard".into(), json!(UNDER_ONE_GUARD));
        measured.params.insert(
            "latencies".into(),
            json!("of 4096 single reads behind the timed part, the clock included"),
        );
        Ok(measured)
    }

    pub fn scan(&self) -> Outcome<Measured> {
        const SCANNED: u64 = 1000;
        let mode = Mode::Volatile;
        let options = self.arguments.options(mode, true);
        let (log, dir) = self.open("scan", options.clone())?;
        let reported = |error| Failure::of_consensus(&error, &dir);
        let mut value = vec![0; self.arguments.size as usize];
        for slot in 0..SCANNED {
            value_of(slot, &mut value);
            log.accept(slot, BALLOT, &value).and_then(|ticket| ticket.wait()).map_err(reported)?;
        }
        let count = self.arguments.count.unwrap_or(20_000).min(1_000_000);
        let outcome = self.timed(1, count, |_, _| {
            let guard = log.pin();
            let scanned = log.scan_uncommitted(&guard)?.len() as u64;
            if scanned == SCANNED { Ok(()) } else { Err(Error::Gap { slot: scanned }) }
        })?;
        self.compare_uncommitted(&log, SCANNED)?;
        let below = self.end(&log, &dir)?;
        let mut measured =
            self.measured("consensus/scan-1000", (&options, &below), 1, count, outcome);
        measured.bytes *= SCANNED;
        measured.params.insert("entries".into(), json!(SCANNED));
        Ok(measured)
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
