//! Puts 1,000 records of 128 bytes under three policies, and prints the time and the rate of each.
//!
//! ```text
//! cargo run -p esker --example minimal_lsm
//! ```

use std::num::NonZeroU64;
use std::path::Path;
use std::time::{Duration, Instant};

use esker::kv::{Error, Policy, Store};

const RECORD_COUNT: u32 = 1000;
const VALUE: [u8; 128] = [0xa5; 128];

/// One policy, measured.
#[derive(Debug)]
pub struct Measured {
    /// When the store syncs.
    pub policy: Policy,
    /// Until every put was durable.
    pub time: Duration,
    /// Records per second.
    pub per_s: f64,
    /// The records that the store has after it was opened again.
    pub recovered: u64,
}

/// Measures the policies, each in a store of its own below `dir`.
pub fn run(dir: &Path) -> Result<Vec<Measured>, Error> {
    let hundred = NonZeroU64::MIN.saturating_add(99);
    let period = Duration::from_millis(10);
    let policies = [Policy::Always, Policy::Batch(hundred), Policy::Periodic(period)];
    (0..).zip(policies).map(|(n, policy)| measure(&dir.join(format!("{n}")), policy)).collect()
}

fn measure(dir: &Path, policy: Policy) -> Result<Measured, Error> {
    let store = Store::builder(dir).policy(policy).open()?;
    let keys = store.keyspace();
    let begin = Instant::now();
    for n in 0..RECORD_COUNT {
        let ticket = keys.put(n.to_be_bytes(), VALUE)?;
        if policy == Policy::Always {
            ticket.blocking_wait()?;
        }
    }
    store.sync()?; // What the policy has not synced yet is part of the time.
    let time = begin.elapsed();
    store.close()?;
    let store = Store::builder(dir).policy(policy).open()?;
    let recovered = store.keyspace().len();
    store.close()?;
    Ok(Measured { policy, time, per_s: f64::from(RECORD_COUNT) / time.as_secs_f64(), recovered })
}

#[allow(dead_code, clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("esker-minimal-lsm-{}", std::process::id()));
    let measured = run(&dir);
    std::fs::remove_dir_all(&dir)?;
    println!("{RECORD_COUNT} records of {} bytes, the last sync included:", VALUE.len());
    for Measured { policy, time, per_s, recovered } in measured? {
        let policy = format!("{policy:?}");
        println!("  {policy:<16} {time:>12.3?} {per_s:>12.0} records/s, {recovered} recovered");
    }
    println!("1,000 records say little about the slow ones. The benchmark: esker-bench kv --csv");
    Ok(())
}
