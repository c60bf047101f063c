//! Reads after a watch: what it delivers is durable, so every later read sees it, or more.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use esker_disk::sim::SimDisk;
use esker_kv::{Action, Batch, Keyspace, Options, Store};

use crate::concurrency::threads::StopAtEnd;

fn store() -> Store {
    let options = Options::on(Arc::new(SimDisk::new(1)));
    Store::builder("/store").options(options).open().unwrap()
}

/// Delivers changes until one has `seen` what it waits for. Another thread syncs all the time, so
/// that records are committed as early as possible.
fn watch_until(store: &Store, write: impl FnOnce() + Send, seen: impl Fn(Action<'_>) -> bool) {
    let stop = AtomicBool::new(false);
    let mut watch = store.watch(store.durable()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                store.sync().unwrap();
            }
        });
        scope.spawn(write);
        let _stop = StopAtEnd(&stop);
        loop {
            let timeout = Duration::from_secs(60);
            let changes = watch.blocking_next_timeout(timeout).unwrap();
            if changes.iter().any(|change| seen(change.action)) {
                break;
            }
        }
    });
}

fn assert_all_reads(keys: &Keyspace, key: &[u8], value: Option<&[u8]>) {
    let read = |what: &str, found: Option<esker_kv::Value>| {
        assert_eq!(found.as_deref(), value, "{what} after the watch delivered the change");
    };
    read("get", keys.get(key).unwrap());
    read("get_durable", keys.get_durable(key).unwrap());
    read("get_many", keys.get_many(&[key]).unwrap().pop().unwrap());
    assert_eq!(keys.contains_key(key).unwrap(), value.is_some());
}

/// A range delete changes the index for a long time.
#[test]
fn reads_see_a_range_delete_that_a_watch_delivered() {
    const KEYS: u32 = 100_000;
    let store = store();
    let keys = store.keyspace();
    let mut batch = Batch::new();
    for n in 0..KEYS {
        batch.put(&keys, n.to_be_bytes(), "value").unwrap();
    }
    store.write(&batch).unwrap().blocking_wait().unwrap();
    let last = (KEYS - 1).to_be_bytes();
    let delete = || drop(keys.delete_range(..).unwrap());
    watch_until(&store, delete, |action| {
        let Action::DeleteRange { .. } = action else { return false };
        assert_all_reads(&keys, &last, None);
        true
    });
}

/// So does a large batch.
#[test]
fn reads_see_a_batch_that_a_watch_delivered() {
    const KEYS: u32 = 20_000;
    let store = store();
    let keys = store.keyspace();
    let batch_of = |value: &str| {
        let mut batch = Batch::new();
        for n in 0..KEYS {
            batch.put(&keys, n.to_be_bytes(), value).unwrap();
        }
        batch
    };
    store.write(&batch_of("old")).unwrap().blocking_wait().unwrap();
    let new = batch_of("new");
    let last = (KEYS - 1).to_be_bytes();
    let write = || drop(store.write(&new).unwrap());
    watch_until(&store, write, |action| {
        assert!(matches!(action, Action::Put { value: b"new", .. }));
        assert_all_reads(&keys, &last, Some(b"new"));
        true
    });
}
