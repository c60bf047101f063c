//! Limits, and what is refused.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_kv::{
    Batch, KEY_LIMIT, KeyspaceError, OpenError, Policy, ReadError, Store, StoreError, VALUE_LIMIT,
    WriteError,
};

use crate::is_closed;

#[test]
fn keys_and_values_at_their_limits_are_kept_and_larger_ones_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let keys = store.keyspace();
    let (key, value) = (vec![0xff; KEY_LIMIT], vec![7; VALUE_LIMIT]);
    keys.put("", "").unwrap().blocking_wait().unwrap();
    keys.put(&key, &value).unwrap().blocking_wait().unwrap();
    keys.put(&key[1..], &value[1..]).unwrap().blocking_wait().unwrap();
    let written = store.accepted();
    let (long_key, long_value) = (vec![0; KEY_LIMIT + 1], vec![0; VALUE_LIMIT + 1]);
    let size = KEY_LIMIT + 1;
    assert!(
        matches!(keys.put(&long_key, ""), Err(WriteError::KeyTooLarge { size: n }) if n == size)
    );
    assert!(matches!(keys.get(&long_key), Err(ReadError::KeyTooLarge { .. })));
    assert!(matches!(keys.delete(&long_key), Err(WriteError::KeyTooLarge { .. })));
    let size = VALUE_LIMIT + 1;
    assert!(
        matches!(keys.put("", &long_value), Err(WriteError::ValueTooLarge { size: n }) if n == size)
    );
    let mut batch = Batch::new();
    assert!(matches!(batch.put(&keys, &long_key, ""), Err(WriteError::KeyTooLarge { .. })));
    assert!(matches!(batch.put(&keys, "", &long_value), Err(WriteError::ValueTooLarge { .. })));
    assert!(matches!(batch.delete(&keys, &long_key), Err(WriteError::KeyTooLarge { .. })));
    assert!(batch.is_empty());
    assert_eq!(store.accepted(), written, "nothing was written");
    store.close().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let keys = store.keyspace();
    assert_eq!(keys.len(), 3);
    assert_eq!(keys.get("").unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(keys.get(&key).unwrap().as_deref(), Some(&value[..]));
    assert_eq!(keys.get(&key[1..]).unwrap().as_deref(), Some(&value[1..]));
    let order: Vec<_> = keys.scan(..).unwrap().map(|entry| entry.unwrap().0).collect();
    assert_eq!(
        order.iter().map(|key| key.len()).collect::<Vec<_>>(),
        [0, KEY_LIMIT - 1, KEY_LIMIT]
    );
    store.close().unwrap();
}

/// Puts new keys until the index is full. Returns how many.
fn fill_index(store: &Store, next: &mut u64) -> u64 {
    let keys = store.keyspace();
    let first = *next;
    loop {
        match keys.put(u128::from(*next).to_be_bytes(), "") {
            Ok(_) => *next += 1,
            Err(WriteError::IndexFull) => return *next - first,
            Err(error) => panic!("{error:?}"),
        }
        assert!(*next < 1_000_000);
    }
}

/// Bug: an index of less than 8 MiB was accepted, and took one key.
#[test]
fn an_index_that_would_take_no_keys_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let open = |bytes| Store::builder(dir.path().join("store")).index_bytes(bytes).open();
    for bytes in [0, 4 << 20, (8 << 20) - 1, (31 << 30) + 1] {
        match open(bytes) {
            Err(OpenError::InvalidOption(refused)) => {
                assert_eq!(refused.option, "index_bytes");
                assert_eq!(refused.rule, "from 8 MiB to 31 GiB");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(!dir.path().join("store").exists());
    open(8 << 20).unwrap().close().unwrap();
}

/// Guards: an index that stays full until the store is opened again.
#[test]
fn a_full_index_takes_new_keys_again_once_keys_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let policy = Policy::Periodic(std::time::Duration::from_secs(3600));
    let open = || {
        let builder = Store::builder(dir.path().join("store")).policy(policy).clean(false);
        builder.index_bytes(8 << 20).open().unwrap()
    };
    let key = |n: u64| u128::from(n).to_be_bytes();
    let store = open();
    let keys = store.keyspace();
    let mut next = 0;
    assert!(fill_index(&store, &mut next) > 50_000);
    // What needs no room for another key works.
    drop(keys.put(key(0), "new").unwrap());
    let mut batch = Batch::new();
    batch.put(&keys, key(1), "new").unwrap();
    batch.delete(&keys, key(2)).unwrap();
    drop(store.write(&batch).unwrap());
    batch.put(&keys, "another", "").unwrap();
    assert!(matches!(store.write(&batch), Err(WriteError::IndexFull)));
    assert!(matches!(store.create_keyspace("new"), Err(KeyspaceError::IndexFull)));

    for n in 3..2003 {
        drop(keys.delete(key(n)).unwrap());
    }
    assert!(
        matches!(keys.put(key(next), ""), Err(WriteError::IndexFull)),
        "it may be read by a crash"
    );
    store.sync().unwrap();
    let snapshot = store.snapshot().unwrap();
    assert!(fill_index(&store, &mut next) > 1700);
    let mut batch = Batch::new();
    batch.put(&keys, key(next), "").unwrap();
    assert!(matches!(store.write(&batch), Err(WriteError::IndexFull)));
    // A snapshot keeps what it reads.
    drop(keys.delete_range(&key(3000)[..]..&key(5000)[..]).unwrap());
    store.sync().unwrap();
    assert_eq!(fill_index(&store, &mut next), 0);
    assert!(snapshot.get(&keys, key(4000)).unwrap().is_some());
    drop(snapshot);
    drop(store.write(&batch).unwrap());
    next += 1;
    assert!(fill_index(&store, &mut next) > 1700);

    let count = keys.len();
    store.close().unwrap();
    // Opening does not obey the limit.
    let store = open();
    let keys = store.keyspace();
    assert_eq!(keys.len(), count);
    assert!(keys.get(key(2)).unwrap().is_none() && keys.get(key(next - 1)).unwrap().is_some());
    store.close().unwrap();
}

#[test]
fn a_directory_of_a_log_is_refused_and_the_reverse() {
    let dir = tempfile::tempdir().unwrap();
    let (log, store) = (dir.path().join("log"), dir.path().join("store"));
    esker_log::Log::open(&log).unwrap().close().unwrap();
    Store::open(&store).unwrap().close().unwrap();
    let files = |dir: &std::path::Path| {
        let mut files: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = (files(&log), files(&store));
    let wrong = Store::open(&log).map(drop);
    let Err(OpenError::Store(StoreError::Log(esker_log::Error::WrongComponent { .. }))) = wrong
    else {
        panic!("{wrong:?}");
    };
    let wrong = esker_log::Log::builder(&store)
        .component(esker_log::Component(*b"ANOTHER!"))
        .open()
        .map(drop);
    assert!(matches!(wrong, Err(esker_log::OpenError::WrongComponent { .. })), "{wrong:?}");
    assert_eq!((files(&log), files(&store)), before, "nothing was changed");
}

#[test]
fn a_closed_store_refuses_everything() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store")).unwrap();
    let keys = store.keyspace();
    keys.put("key", "value").unwrap().blocking_wait().unwrap();
    let snapshot = store.snapshot().unwrap();
    let mut scan = keys.scan(..).unwrap();
    store.close().unwrap();
    assert!(is_closed(store.close()));
    assert!(is_closed(keys.put("key", "new")));
    assert!(is_closed(keys.delete("key")));
    assert!(is_closed(keys.get("key")));
    assert!(is_closed(keys.get("absent")));
    assert!(is_closed(keys.contains_key("key")));
    assert!(is_closed(keys.scan(..)));
    assert!(is_closed(scan.next().unwrap()));
    assert!(is_closed(store.snapshot()));
    assert!(is_closed(snapshot.get(&keys, "key")));
    assert!(is_closed(store.create_keyspace("new")));
    assert!(is_closed(store.sync()));
    assert!(is_closed(store.compact()));
}

#[test]
fn the_files_of_a_store_are_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Store::open(&path).unwrap();
    store.keyspace().put("key", "value").unwrap().blocking_wait().unwrap();
    assert!(store.checkpoint().unwrap());
    for entry in std::fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.file_name());
    }
    store.close().unwrap();
}
