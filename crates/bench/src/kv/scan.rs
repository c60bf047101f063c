//! Scans of all keys.

use std::time::{Duration, Instant};

use esker_kv::Store;

use super::run_length::CHECK_EVERY;
use super::store_arguments::KvBenchArguments;
use super::store_callers::TimedPart;
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, ResourceUse, Snapshot};
use esker_command::exit::{Failure, Outcome};

/// Scans all keys again and again. A cold scan ends with the time or the count, and not only at the
/// last key: it may take minutes.
pub fn run(arguments: &KvBenchArguments, store: &Store) -> esker_kv::Result<Outcome<TimedPart>> {
    let most = Duration::from_secs_f64(arguments.seconds.unwrap_or(3.0));
    let keyspace = store.keyspace();
    resources::reset_peak();
    let syncs = store.stats().log.syncs;
    let snapshot = Snapshot::now();
    let (mut ops, mut latencies) = (0u64, Latencies::new());
    let begin = Instant::now();
    let is_over = |ops: u64| match arguments.count {
        Some(count) => ops >= count,
        None => begin.elapsed() >= most,
    };
    while !is_over(ops) {
        let start = Instant::now();
        let mut keys = 0;
        let mut whole = true;
        for entry in keyspace.scan(..)? {
            entry?;
            keys += 1;
            if arguments.cold && keys % CHECK_EVERY == 0 && is_over(ops + keys) {
                whole = false;
                break;
            }
        }
        if whole && keys != arguments.keys {
            let what = format!("scanned {keys} of {} keys", arguments.keys);
            return Ok(Err(Failure::failed(what)));
        }
        ops += keys;
        latencies.add(start.elapsed());
    }
    let time = begin.elapsed();
    let used = ResourceUse { resident: resources::peak(), ..snapshot.used() };
    let syncs = store.stats().log.syncs - syncs;
    Ok(Ok(TimedPart { ops, time, before_last_sync: time, syncs, timed_every: 1, latencies, used }))
}
