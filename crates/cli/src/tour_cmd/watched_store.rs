//! Puts keys into a store, watches and scans them, and opens the store again.

use std::path::Path;

use esker_kv::{Action, Error, Store};

use super::step::{Figure, StepResult, ensure, record, timed};

const KEY_COUNT: u64 = 20_000;

pub fn run(dir: &Path) -> StepResult<Vec<Figure>> {
    let builder = Store::builder(dir).segment_size(8 << 20).reserve(1 << 20);
    let store = builder.clone().open()?;
    let put_all = || -> Result<(), Error> {
        for n in 0..KEY_COUNT {
            drop(store.keyspace().put(key(n), record(n))?);
        }
        Ok(store.sync()?)
    };
    let ((), put_ms) = timed(put_all)?;
    let (mut watch, mut next) = (store.watch(0)?, 0);
    while next < KEY_COUNT {
        for change in &watch.blocking_next()? {
            let (key, value) = (key(next), record(next));
            let due = Action::Put { key: key.as_bytes(), value: value.as_bytes() };
            ensure!(change.action == due, "{change:?} was watched where the put of {key} was due");
            next += 1;
        }
    }
    let ((), scan_ms) = timed(|| scan(&store))?;
    store.close()?;
    let (store, open_ms) = timed(|| builder.open())?;
    scan(&store)?;
    store.close()?;
    Ok(vec![
        ("puts_per_s", KEY_COUNT as f64 / put_ms * 1e3, "{} put and durable a second"),
        ("scan_keys_per_s", KEY_COUNT as f64 / scan_ms * 1e3, "{} scanned a second"),
        ("open_ms", open_ms, "opened again in {} ms"),
    ])
}

/// The key of put `n`, below those of the puts before.
fn key(n: u64) -> String {
    format!("key {:05}", KEY_COUNT - n)
}

/// Checks that a scan has all keys in order, with their values.
fn scan(store: &Store) -> StepResult<()> {
    let found = store.keyspace().scan(..)?.collect::<Result<Vec<_>, _>>()?;
    let found = found.iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
    let due = (0..KEY_COUNT).rev().map(|n| (key(n).into_bytes(), record(n).into_bytes()));
    ensure!(found.eq(due), "a scan lacks keys, or has other values than were put");
    Ok(())
}
