//! A child that `fork` makes has a copy of each handle, and no part in the store: its calls fail
//! with `Forked`, it opens nothing, and what it drops or closes changes no file and releases no
//! lock.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use esker_kv::{Batch, Error, OpenError, ReadOnlyStore, Store, StoreError};
use esker_log::{Engine, Seq};
use esker_testkit::{import, in_forked_child, polled_once};

const PATIENCE: Duration = Duration::from_secs(180);

#[track_caller]
fn forked<T>(what: &str, outcome: Result<T, impl Into<Error>>) {
    match outcome.err().map(Into::into) {
        Some(Error::Store(StoreError::Forked)) => {}
        other => panic!("{what}: {other:?}"),
    }
}

/// Closing writes a checkpoint and the clean end of the log.
#[test]
fn a_child_that_drops_a_store_changes_nothing() {
    let workdir = tempfile::tempdir().unwrap();
    let dir = workdir.path().join("store");
    let engine = Engine::manual();
    let open = || Store::builder(&dir).engine(engine.clone()).open();
    let store = open().unwrap();
    store.keyspace().put("before", "1").unwrap().blocking_wait().unwrap();
    let (before, store) = (import(&dir).unwrap(), Cell::new(Some(store)));
    in_forked_child(|| {
        let store = store.take().unwrap();
        forked("close", store.close());
        drop(store);
    })
    .unwrap();
    assert!(import(&dir).unwrap() == before, "files changed");
    match open() {
        Err(OpenError::Store(StoreError::Log(esker_log::Error::Locked { .. }))) => {}
        other => panic!("the lock of a living writer is free: {other:?}"),
    }
    let parents = store.take().unwrap();
    parents.keyspace().put("after", "2").unwrap().blocking_wait().unwrap();
    parents.close().unwrap();
    let again = open().unwrap();
    let keys = again.keyspace();
    assert_eq!(keys.get("before").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(keys.get("after").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn every_call_of_a_child_is_refused() {
    let workdir = tempfile::tempdir().unwrap();
    let dir = workdir.path().join("store");
    let store = Store::open(&dir).unwrap();
    let keys = store.keyspace();
    keys.put("key", "value").unwrap().blocking_wait().unwrap();
    store.create_keyspace("other").unwrap();
    let ticket = keys.put("other", "value").unwrap();
    let snapshot = Cell::new(Some(store.snapshot().unwrap()));
    let scan = Cell::new(Some(keys.scan(..).unwrap()));
    let watch = Cell::new(Some(store.watch(Seq(0)).unwrap()));
    let reader = ReadOnlyStore::open(&dir).unwrap();
    let read = reader.keyspace();
    let mut batch = Batch::new();
    batch.put(&keys, "key", "x").unwrap();
    in_forked_child(|| {
        forked("put", keys.put("key", "x"));
        forked("put_async", polled_once(keys.put_async("key", "x")));
        forked("delete", keys.delete("key"));
        forked("delete_range", keys.delete_range(..));
        forked("write", store.write(&batch));
        forked("write_async", polled_once(store.write_async(&batch)));
        forked("get", keys.get("key"));
        forked("get_durable", keys.get_durable("key"));
        forked("get_many", keys.get_many(&["key"]));
        forked("contains_key", keys.contains_key("key"));
        forked("scan", keys.scan(..));
        forked("create_keyspace", store.create_keyspace("new"));
        forked("drop_keyspace", store.drop_keyspace("new"));
        forked("snapshot", store.snapshot());
        forked("barrier", store.barrier());
        forked("sync", store.sync());
        forked("wait_durable", polled_once(store.wait_durable(Seq(100))));
        forked("watch", store.watch(Seq(0)));
        forked("backup", store.backup(workdir.path().join("backup")));
        forked("compact", store.compact());
        forked("checkpoint", store.checkpoint());
        forked("ticket", ticket.clone().blocking_wait());
        let snapshot = snapshot.take().unwrap();
        forked("get of a snapshot", snapshot.get(&keys, "key"));
        forked("scan of a snapshot", snapshot.scan(&keys, ..));
        let mut scan = scan.take().unwrap();
        forked("scan", scan.next().unwrap());
        let mut watch = watch.take().unwrap();
        forked("watch", watch.blocking_next_timeout(PATIENCE));
        forked("reader", read.get("key"));
        forked("refresh", reader.refresh());
        // Their names are behind a lock.
        assert!(store.find_keyspace("other").is_none() && reader.find_keyspace("other").is_none());
        assert!(store.keyspaces() == ["default"] && reader.keyspaces() == ["default"]);
        reader.close();
        drop((snapshot, scan, watch));
        forked("close", store.close());
    })
    .unwrap();
    ticket.blocking_wait().unwrap();
    assert_eq!(keys.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(scan.take().unwrap().count(), 2);
    let next = watch.take().unwrap().blocking_next_timeout(PATIENCE).unwrap();
    assert!(!next.is_empty());
    reader.refresh().unwrap();
    drop(snapshot.take());
    store.close().unwrap();
}

#[test]
fn a_child_opens_nothing() {
    let workdir = tempfile::tempdir().unwrap();
    let (dir, new) = (workdir.path().join("store"), workdir.path().join("new"));
    let store = Store::open(&dir).unwrap();
    let engine = Engine::new(1).unwrap();
    in_forked_child(|| {
        forked("open", Store::open(&new));
        forked("open, of its parent", Store::open(&dir));
        forked("open, an engine", Store::builder(&new).engine(engine.clone()).open());
        forked("reader", ReadOnlyStore::open(&dir));
    })
    .unwrap();
    assert!(!new.exists());
    store.close().unwrap();
}

/// Forks while the locks of writers, snapshots and the log are held, each at some moment.
#[test]
fn children_of_a_busy_process_end() {
    let workdir = tempfile::tempdir().unwrap();
    let store = Store::open(workdir.path().join("store")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                let keys = store.keyspace();
                for n in (0_u64..).take_while(|_| !is_over.load(SeqCst)) {
                    drop(store.snapshot().unwrap());
                    let key = format!("{thread}-{}", n % 100);
                    drop(keys.put(key, n.to_le_bytes()).unwrap());
                }
            });
        }
        let outcome = (0..30).try_for_each(|_| {
            let keys = store.keyspace();
            let kept = Cell::new(Some((store.clone(), store.snapshot().unwrap(), keys.clone())));
            let outcome = in_forked_child(|| {
                let (store, snapshot, keys) = kept.take().unwrap();
                forked("put", keys.put("0-0", "x"));
                forked("get", keys.get("0-0"));
                drop(snapshot);
                forked("snapshot", store.snapshot());
                forked("checkpoint", store.checkpoint());
                forked("close", store.close());
            });
            drop(kept);
            outcome
        });
        is_over.store(true, SeqCst);
        outcome.unwrap();
    });
    store.close().unwrap();
}
