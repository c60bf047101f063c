//! Memory and disk space come back.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use esker_kv::{OpenError, Options, Policy, Store, WriteError};
use esker_log::OnCorruption;

fn store(change: impl FnOnce(&mut Options)) -> (Store, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.log.policy = Policy::Periodic(Duration::from_millis(5));
    options.log.segment_size = 64 << 10;
    options.cache_bytes = 1 << 20;
    change(&mut options);
    let store = Store::builder(dir.path().join("store")).options(options).open().unwrap();
    (store, dir)
}

fn fill(store: &Store) {
    let keys = store.keyspace();
    (0..400u32).for_each(|n| drop(keys.put(n.to_be_bytes(), vec![7; 8000]).unwrap()));
    store.sync().unwrap();
    assert!(store.stats().disk_bytes > 3 << 20);
}

fn shrinks(store: &Store) {
    let began = Instant::now();
    while store.stats().disk_bytes > 1 << 20 {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", store.stats());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Nothing is put after that.
#[test]
fn deleting_starts_cleaning_in_the_background() {
    let (store, _dir) = store(|_| {});
    fill(&store);
    (0..400u32).for_each(|n| drop(store.keyspace().delete(n.to_be_bytes()).unwrap()));
    shrinks(&store);
    fill(&store);
    drop(store.keyspace().delete_range(..).unwrap());
    shrinks(&store);
    assert!(store.keyspace().is_empty());
    store.close().unwrap();
}

/// A snapshot keeps cleaning from dropping anything.
#[test]
fn writers_wait_while_cleaning_is_behind() {
    let (store, _dir) = store(|options| options.snapshot_timeout = Duration::from_secs(600));
    let keys = store.keyspace();
    let put = |n: u32| drop(keys.put((n % 16).to_be_bytes(), vec![n as u8; 8000]).unwrap());
    (0..16).for_each(put);
    let snapshot = store.snapshot().unwrap();
    let mut n = 0;
    while store.stats().throttled < 3 {
        put(n);
        n += 1;
        assert!(n < 100_000, "{:?}", store.stats());
    }
    assert!(store.stats().throttled_time > Duration::ZERO);
    assert_eq!(snapshot.get(&keys, 0u32.to_be_bytes()).unwrap().unwrap()[0], 0);
    drop(snapshot);
    shrinks(&store);
    let before = store.stats().throttled;
    (0..16).for_each(put);
    assert_eq!(store.stats().throttled, before, "it is not behind any more");
    store.close().unwrap();
}

#[test]
fn dropped_keyspaces_give_their_memory_back() {
    let (store, _dir) = store(|options| options.clean = false);
    let mut bytes = Vec::new();
    for _ in 0..5 {
        let keys = store.create_keyspace("name").unwrap();
        (0..20_000u32).for_each(|n| drop(keys.put(n.to_be_bytes(), "").unwrap()));
        store.drop_keyspace("name").unwrap();
        assert!(matches!(keys.put("key", ""), Err(WriteError::KeyspaceDropped { .. })));
        bytes.push(store.stats().index_bytes);
    }
    assert!(bytes[4] < bytes[0] + bytes[0] / 2, "{bytes:?}");
    // A snapshot keeps them, until cleaning.
    let keys = store.create_keyspace("name").unwrap();
    (0..20_000u32).for_each(|n| drop(keys.put(n.to_be_bytes(), "").unwrap()));
    let snapshot = store.snapshot().unwrap();
    store.drop_keyspace("name").unwrap();
    drop(snapshot);
    store.compact().unwrap();
    let keys = store.create_keyspace("name").unwrap();
    (0..20_000u32).for_each(|n| drop(keys.put(n.to_be_bytes(), "").unwrap()));
    assert!(store.stats().index_bytes < 2 * bytes[0], "{bytes:?}");
    store.close().unwrap();
}

/// A value that was replaced before a snapshot is not kept for it.
#[test]
fn a_scan_does_not_expire_for_versions_that_it_does_not_need() {
    let (store, _dir) = store(|options| options.history_bytes = 64 << 10);
    let keys = store.keyspace();
    (0..5000u32).for_each(|n| drop(keys.put(n.to_be_bytes(), "old").unwrap()));
    keys.delete_range(..).unwrap().blocking_wait().unwrap();
    drop(keys.put("a", "1").unwrap());
    let mut scan = keys.scan(..).unwrap();
    keys.put("b", "2").unwrap().blocking_wait().unwrap();
    drop(keys.put("c", "3").unwrap());
    let (key, value) = scan.next().unwrap().unwrap();
    assert_eq!((&key[..], &value[..]), (&b"a"[..], &b"1"[..]));
    assert!(scan.next().is_none());
    store.close().unwrap();
}

/// Cutting off a part of a store that was cleaned loses keys of any age.
#[test]
fn options_that_would_lose_keys_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open =
        Store::builder(dir.path().join("store")).on_corruption(OnCorruption::Truncate).open();
    let refused = open.map(drop);
    let names = |refused: &Result<(), OpenError>, name: &str| match refused {
        Err(OpenError::InvalidOption(refused)) => refused.option == name,
        _ => false,
    };
    assert!(names(&refused, "on_corruption"), "{refused:?}");
    let open = Store::builder(dir.path().join("store")).cache_bytes(u64::MAX).open();
    assert!(names(&open.map(drop), "cache_bytes"));
    // The rules of the log's options are reported in the same way.
    let open = Store::builder(dir.path().join("store")).segment_size(5).open();
    let refused = open.map(drop);
    assert!(names(&refused, "segment_size"), "{refused:?}");
    assert!(!dir.path().join("store").exists(), "nothing was written");
}

/// Bug: the file of the last prewrite stayed open, and with it the space of its segment.
#[test]
fn no_file_of_a_dropped_segment_stays_open() {
    let (store, dir) = store(|options| {
        options.log.policy = Policy::Always;
        options.log.segment_size = 1 << 20;
        options.clean = false;
    });
    let keys = store.keyspace();
    // Small commits, whose blocks are prewritten; then large ones.
    for n in 0..20u32 {
        keys.put(n.to_be_bytes(), "1").unwrap().blocking_wait().unwrap();
    }
    let tickets: Vec<_> =
        (0..100u32).map(|n| keys.put(n.to_be_bytes(), vec![7; 100_000]).unwrap()).collect();
    drop(tickets);
    store.sync().unwrap();
    drop(keys.delete_range(..).unwrap());
    let done = store.compact().unwrap();
    assert!(done.segments > 5, "{done:?}");
    let open = |what: &str| {
        let files = std::fs::read_dir("/proc/self/fd").unwrap();
        let files = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
        files
            .filter(|file| file.starts_with(dir.path()) && file.to_string_lossy().ends_with(what))
            .count()
    };
    assert!(open(".seg") > 0, "{:?}", dir.path());
    assert_eq!(open(".seg (deleted)"), 0);
    store.close().unwrap();
}
