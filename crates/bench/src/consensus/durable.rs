//! The durable works: accepting and committing, by one caller or many, and many commits in one
//! sync.

use std::time::{Duration, Instant};

use esker_consensus::{Error, Mode, Slot};
use serde_json::json;

use super::compare::stamp_value;
use super::consensus_arguments::BALLOT;
use super::timed::{Bench, Measurement};
use crate::load::tasks::{self, WORKER_THREADS};
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, ResourceUse, Snapshot};
use esker_command::exit::{Failure, Outcome};

impl Bench<'_> {
    /// Returns the limits of a durable work: rounds of `each` operations, and time.
    pub fn limits(&self, each: u64) -> (u64, Duration) {
        match self.arguments.count {
            Some(count) => ((count / each).max(1), Duration::MAX),
            None => {
                let seconds = self.arguments.seconds.unwrap_or(2.0);
                (u64::MAX, Duration::from_secs_f64(seconds))
            }
        }
    }

    pub fn durable(&self, callers: u64) -> Outcome<Measurement> {
        let mode = Mode::Durable;
        let options = self.arguments.options(mode, true);
        let (log, dir) = self.open(&format!("durable-{callers}"), options.clone())?;
        let runtime =
            tasks::runtime().map_err(|error| Failure::from_io("start the runtime", &error))?;
        let (max_rounds, max_time) = self.limits(callers);
        let size = self.arguments.size as usize;
        resources::reset_peak();
        let writer = log.clone();
        let (start, ended) = tasks::run(&runtime, 0..callers as u32, move |caller, start| {
            let log = writer.clone();
            async move {
                let (mut latencies, mut value) = (Latencies::new(), vec![0; size]);
                let mut done = 0;
                while done < max_rounds && start.begin.elapsed() < max_time {
                    let slot = done * callers + u64::from(caller);
                    stamp_value(slot, &mut value);
                    let begin = Instant::now();
                    log.accept(Slot(slot), BALLOT, &value)?.await?;
                    log.commit(Slot(slot), BALLOT)?.await?;
                    latencies.add(begin.elapsed());
                    done += 1;
                }
                Ok::<_, Error>((latencies, done))
            }
        });
        let time = start.begin.elapsed();
        let used = ResourceUse { resident: resources::peak(), ..start.snapshot.used() };
        let (mut latencies, mut ops) = (Latencies::new(), 0);
        for ended in ended {
            let (of_caller, done) = ended.map_err(|error| Failure::from_consensus(error, &dir))?;
            latencies.merge(&of_caller);
            ops += done;
        }
        let count = log.stats().committed.map_or(0, |range| range.count);
        if count != ops {
            return Err(Failure::failed(format!("read {count} of {ops} commits")));
        }
        self.compare_all(&log)?;
        let syncs = log.stats().log_stats.syncs;
        let metadata = self.end(&log, &dir)?;
        let mut measured = self.measured(
            "consensus/durable-accept-commit",
            (&options, &metadata),
            callers as usize,
            ops,
            (time, latencies, used),
        );
        measured.params.insert("syncs".into(), json!(syncs));
        measured.params.insert("callers".into(), json!("tasks"));
        measured.params.insert("workers".into(), json!(WORKER_THREADS));
        Ok(measured)
    }

    pub fn batch(&self) -> Outcome<Measurement> {
        const BATCH_SLOTS: u64 = 100;
        let mode = Mode::Durable;
        let options = self.arguments.options(mode, true);
        let (log, dir) = self.open("batch", options.clone())?;
        let (max_rounds, max_time) = self.limits(BATCH_SLOTS);
        let size = self.arguments.size as usize;
        let mut latencies = Latencies::new();
        let (mut time, mut rounds, mut syncs) = (Duration::ZERO, 0, 0);
        let (begin, snapshot) = (Instant::now(), Snapshot::now());
        resources::reset_peak();
        while rounds < max_rounds && begin.elapsed() < max_time {
            let slots = rounds * BATCH_SLOTS..(rounds + 1) * BATCH_SLOTS;
            let mut values = vec![vec![0; size]; BATCH_SLOTS as usize];
            slots.clone().zip(&mut values).for_each(|(slot, value)| stamp_value(slot, value));
            let pairs: Vec<_> =
                slots.clone().map(Slot).zip(values.iter().map(Vec::as_slice)).collect();
            log.accept_batch(BALLOT, &pairs)
                .map_err(Failure::in_consensus_log(&dir))?
                .blocking_wait()
                .map_err(Failure::in_consensus_log(&dir))?;
            let commits: Vec<_> = slots.map(|slot| (Slot(slot), BALLOT)).collect();
            let before = log.stats().log_stats.syncs;
            let start = Instant::now();
            let done = log.commit_batch(&commits).map_err(Failure::in_consensus_log(&dir))?;
            done.ticket.blocking_wait().map_err(Failure::in_consensus_log(&dir))?;
            let took = start.elapsed();
            latencies.add(took);
            time += took;
            syncs += log.stats().log_stats.syncs - before;
            rounds += 1;
            for result in done.results {
                result.map_err(Failure::in_consensus_log(&dir))?;
            }
        }
        let used = ResourceUse { resident: resources::peak(), ..snapshot.used() };
        self.compare_committed(&log, rounds * BATCH_SLOTS)?;
        let metadata = self.end(&log, &dir)?;
        let outcome = (time, latencies, used);
        let bench = "consensus/batch-commit-100";
        let mut measured =
            self.measured(bench, (&options, &metadata), 1, rounds * BATCH_SLOTS, outcome);
        measured.params.insert("commits".into(), json!(BATCH_SLOTS));
        measured.params.insert("batches".into(), json!(rounds));
        measured.params.insert("syncs".into(), json!(syncs));
        measured
            .params
            .insert("latencies".into(), json!("of whole batches; accepting them is not timed"));
        Ok(measured)
    }
}
