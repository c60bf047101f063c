//! Snapshots of 1 MiB: created, each durable before the next, and read, each checked and compared.

use std::io::Read;
use std::time::{Duration, Instant};

use esker_consensus::{Mode, Slot};
use serde_json::json;

use super::consensus_arguments::BALLOT;
use super::timed::{Bench, Measurement};
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, ResourceUse, Snapshot};
use esker_command::exit::{Failure, Outcome};

/// Snapshots that are kept; older ones are removed.
const SNAPSHOTS_KEPT: u64 = 16;
/// The operations of `--count` that one snapshot counts as.
const OPERATIONS_PER_SNAPSHOT: u64 = 10;
/// The state in a snapshot.
const STATE_BYTES: usize = 1 << 20;

impl Bench<'_> {
    /// Creates snapshots, or reads the same one again and again.
    pub fn snapshots(&self, create: bool) -> Outcome<Measurement> {
        let options = self.arguments.options(Mode::Durable, true);
        let work = if create { "snapshot-create" } else { "snapshot-read" };
        let (log, dir) = self.open(work, options.clone())?;
        let wrong =
            || Failure::failed("a snapshot was read that is not the one written".to_owned());
        log.learn(Slot(0), BALLOT, b"0")
            .and_then(|ticket| Ok(ticket.blocking_wait()?))
            .map_err(Failure::in_consensus_log(&dir))?;
        let mut state: Vec<u8> = (0..STATE_BYTES).map(|at| (at / 255 + at * 7) as u8).collect();
        log.snapshots().create(Slot(0), &*state).map_err(Failure::in_consensus_log(&dir))?;
        let (max_rounds, max_time) = self.limits(OPERATIONS_PER_SNAPSHOT);
        let (mut latencies, mut time, mut rounds) = (Latencies::new(), Duration::ZERO, 0u64);
        let (begin, snapshot) = (Instant::now(), Snapshot::now());
        let mut read = Vec::with_capacity(STATE_BYTES);
        resources::reset_peak();
        while rounds < max_rounds && begin.elapsed() < max_time {
            state[..8].copy_from_slice(&rounds.to_le_bytes());
            if create {
                let slot = Slot(rounds + 1);
                let learned =
                    log.learn(slot, BALLOT, b"0").map_err(Failure::in_consensus_log(&dir))?;
                learned.blocking_wait().map_err(Failure::in_consensus_log(&dir))?;
                let start = Instant::now();
                log.snapshots().create(slot, &*state).map_err(Failure::in_consensus_log(&dir))?;
                latencies.add(start.elapsed());
                time += start.elapsed();
                if rounds % SNAPSHOTS_KEPT == 0 {
                    log.snapshots().keep(1).map_err(Failure::in_consensus_log(&dir))?;
                }
            } else {
                read.clear();
                let start = Instant::now();
                let mut latest =
                    log.snapshots().latest().map_err(Failure::in_consensus_log(&dir))?;
                latest.read_to_end(&mut read).map_err(|error| Failure::from_io("read", &error))?;
                latencies.add(start.elapsed());
                time += start.elapsed();
                if read[8..] != state[8..] {
                    return Err(wrong());
                }
            }
            rounds += 1;
        }
        let used = ResourceUse { resident: resources::peak(), ..snapshot.used() };
        if create {
            let mut latest = log.snapshots().latest().map_err(Failure::in_consensus_log(&dir))?;
            latest.read_to_end(&mut read).map_err(|error| Failure::from_io("read", &error))?;
            if read != state {
                return Err(wrong());
            }
        }
        let stats = self.end(&log, &dir)?;
        let bench = match create {
            true => "consensus/snapshot-create-1mib",
            false => "consensus/snapshot-read-1mib",
        };
        let outcome = (time, latencies, used);
        let mut measured = self.measured(bench, (&options, &stats), 1, rounds, outcome);
        measured.params.insert("size".into(), json!(STATE_BYTES));
        measured.bytes = rounds * STATE_BYTES as u64;
        Ok(measured)
    }
}
