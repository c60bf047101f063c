//! Snapshots: one point in time, within bounds of memory and time.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use esker_kv::{Options, Policy, ReadError, Store};

fn store(change: impl FnOnce(&mut Options)) -> (Store, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.log.policy = Policy::Periodic(Duration::from_millis(20));
    options.cache_bytes = 1 << 20;
    change(&mut options);
    let store = Store::builder(dir.path().join("store")).options(options).open().unwrap();
    (store, dir)
}

/// Entries of deleted keys are removed in batches; not while a snapshot reads them.
#[test]
fn a_snapshot_reads_what_was_deleted_since() {
    let (store, _dir) = store(|_| {});
    let keys = store.keyspace();
    let key = |n: u32| format!("key-{n:06}");
    for n in 0..20_000 {
        drop(keys.put(key(n), n.to_be_bytes()).unwrap());
    }
    let snapshot = store.snapshot().unwrap();
    for n in 0..20_000 {
        drop(keys.delete(key(n)).unwrap());
    }
    store.sync().unwrap();
    // A scan removes what can be removed.
    assert_eq!(keys.scan(..).unwrap().count(), 0);
    let found: Vec<_> = snapshot.scan(&keys, ..).unwrap().map(Result::unwrap).collect();
    assert_eq!(found.len(), 20_000);
    for (n, (found, value)) in (0..).zip(&found) {
        assert_eq!((&found[..], &value[..]), (key(n).as_bytes(), &u32::to_be_bytes(n)[..]));
    }
    assert_eq!(snapshot.get(&keys, key(7)).unwrap().as_deref(), Some(&7u32.to_be_bytes()[..]));
    let before = store.stats().index_bytes;
    drop(snapshot);
    // Their memory is used again once the snapshot is closed.
    for round in 1..4u32 {
        for n in 0..20_000 {
            drop(keys.put(key(round * 100_000 + n), b"").unwrap());
        }
        for n in 0..20_000 {
            drop(keys.delete(key(round * 100_000 + n)).unwrap());
        }
        store.sync().unwrap();
        assert_eq!(keys.scan(..).unwrap().count(), 0);
    }
    let after = store.stats().index_bytes;
    assert!(after < 2 * before, "{before} bytes became {after}");
    store.close().unwrap();
}

#[test]
fn a_snapshot_expires_when_too_much_was_overwritten() {
    let (store, _dir) = store(|options| options.history_bytes = 64 << 10);
    let keys = store.keyspace();
    drop(keys.put("key", "old").unwrap());
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.get(&keys, "key").unwrap().as_deref(), Some(&b"old"[..]));
    for n in 0..10_000u32 {
        drop(keys.put("key", n.to_be_bytes()).unwrap());
    }
    // What is not durable yet may still be needed by readers of durable values, too.
    store.sync().unwrap();
    drop(keys.put("key", 9999u32.to_be_bytes()).unwrap());
    assert!(matches!(snapshot.get(&keys, "key"), Err(ReadError::SnapshotExpired)));
    assert!(matches!(snapshot.scan(&keys, ..), Err(ReadError::SnapshotExpired)));
    let again = store.snapshot().unwrap();
    assert_eq!(again.get(&keys, "key").unwrap().as_deref(), Some(&9999u32.to_be_bytes()[..]));
    store.close().unwrap();
}

/// Cleaning waits for a snapshot, for a bounded time.
#[test]
fn a_snapshot_keeps_cleaning_from_dropping_what_it_reads() {
    let timeout = Duration::from_millis(300);
    let (store, _dir) = store(|options| {
        options.snapshot_timeout = timeout;
        options.log.segment_size = 64 << 10;
        options.cache_bytes = 0;
        options.clean = false;
    });
    let keys = store.keyspace();
    let value = |n: u32| vec![n as u8; 4000];
    (0..100u32).for_each(|n| drop(keys.put(n.to_be_bytes(), value(n)).unwrap()));
    let began = std::time::Instant::now();
    let snapshot = store.snapshot().unwrap();
    (0..100u32).for_each(|n| drop(keys.put(n.to_be_bytes(), b"new").unwrap()));
    store.sync().unwrap();
    std::thread::scope(|scope| {
        let cleaning = scope.spawn(|| store.compact().unwrap());
        while began.elapsed() < timeout / 2 {
            for n in 0..100u32 {
                let found = snapshot.get(&keys, n.to_be_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(&value(n)[..]));
            }
            assert!(!cleaning.is_finished());
        }
        assert!(cleaning.join().unwrap().segments > 0);
    });
    assert!(began.elapsed() >= timeout);
    assert!(matches!(snapshot.get(&keys, 0u32.to_be_bytes()), Err(ReadError::SnapshotExpired)));
    store.close().unwrap();
}
