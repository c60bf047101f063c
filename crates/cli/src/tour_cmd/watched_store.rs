//! Puts keys into a store, watches and scans them, and opens the store again.

use std::path::Path;
use std::time::{Duration, Instant};

use esker_kv::{Action, Result, Store};

use super::step::{Figure, StepResult, ensure, millis, record};

const KEY_COUNT: u64 = 20_000;

pub fn run(dir: &Path) -> StepResult<Vec<Figure>> {
    let builder = Store::builder(dir).segment_size(8 << 20).reserve(1 << 20);
    let (store, begin) = (builder.clone().open()?, Instant::now());
    for n in 0..KEY_COUNT {
        drop(store.keyspace().put(key(n), record(n))?);
    }
    store.sync()?;
    let puts = KEY_COUNT as f64 / begin.elapsed().as_secs_f64();
    let (mut watch, mut next) = (store.watch(0)?, 0);
    while next < KEY_COUNT {
        for change in &watch.blocking_next()? {
            let (key, value) = (key(next), record(next));
            let due = Action::Put { key: key.as_bytes(), value: value.as_bytes() };
            ensure!(change.action == due, "{change:?} was watched where the put of {key} was due");
            next += 1;
        }
    }
    let scanned = KEY_COUNT as f64 / scan(&store)?.as_secs_f64();
    store.close()?;
    let begin = Instant::now();
    let store = builder.open()?;
    let open = begin.elapsed();
    scan(&store)?;
    store.close()?;
    Ok(vec![
        ("puts_per_s", puts, "{} put and durable a second"),
        ("scan_keys_per_s", scanned, "{} scanned a second"),
        ("open_ms", millis(open), "opened again in {} ms"),
    ])
}

/// The key of put `n`, below those of the puts before.
fn key(n: u64) -> String {
    format!("key {:05}", KEY_COUNT - n)
}

/// Checks that a scan has all keys in order, with their values. Returns how long it took.
fn scan(store: &Store) -> StepResult<Duration> {
    let begin = Instant::now();
    let found = store.keyspace().scan(..)?.collect::<Result<Vec<_>>>()?;
    let time = begin.elapsed();
    let found = found.iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
    let is_right =
        found.eq((0..KEY_COUNT).rev().map(|n| (key(n).into_bytes(), record(n).into_bytes())));
    ensure!(is_right, "a scan lacks keys, or has other values than were put");
    Ok(time)
}
