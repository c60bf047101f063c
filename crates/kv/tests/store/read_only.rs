//! A store that is open for reading, beside the one that writes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use esker_disk::sim::SimDisk;
use esker_disk::{Disk, Op};
use esker_kv::{Batch, Error, Options, Policy, ReadOnlyStore, Store};
use esker_log::{Engine, Log};
use esker_testkit::{Call, HookedDisk};

const DIR: &str = "/store";

fn options(disk: &SimDisk) -> Options {
    let mut options = Options::on(Arc::new(disk.process()));
    options.segment_size = 64 << 10;
    options.clean = false;
    options.engine = Some(Engine::manual());
    options
}

fn writer(disk: &SimDisk) -> Store {
    Store::builder(DIR).options(options(disk)).open().unwrap()
}

fn reader(disk: &SimDisk) -> ReadOnlyStore {
    open_reader(Arc::new(disk.process())).unwrap()
}

fn open_reader(disk: Arc<dyn Disk>) -> Result<ReadOnlyStore, Error> {
    // Without a cache: values come from the log.
    ReadOnlyStore::builder(DIR).disk(disk).cache_bytes(0).engine(Engine::manual()).open()
}

type Content = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn content(store: &Store) -> Content {
    let of = |name: &String| {
        let keys = store.find_keyspace(name).unwrap();
        keys.scan::<[u8]>(..)
            .unwrap()
            .map(|e| e.unwrap())
            .map(|(k, v)| (k.to_vec(), v.to_vec()))
            .collect()
    };
    store.keyspaces().into_iter().map(|name| (name.clone(), of(&name))).collect()
}

fn read(store: &ReadOnlyStore) -> Content {
    let of = |name: &String| {
        let keys = store.find_keyspace(name).unwrap();
        let all: BTreeMap<_, _> = keys
            .scan::<[u8]>(..)
            .unwrap()
            .map(|e| e.unwrap())
            .map(|(k, v)| (k.to_vec(), v.to_vec()))
            .collect();
        assert_eq!(keys.len(), all.len() as u64);
        for (key, value) in &all {
            assert_eq!(keys.get(key).unwrap().as_deref(), Some(&value[..]));
            assert!(keys.contains_key(key).unwrap());
        }
        all
    };
    store.keyspaces().into_iter().map(|name| (name.clone(), of(&name))).collect()
}

/// Overwrites keys, so that most of the oldest segments is dead.
fn overwrite(store: &Store, puts: u32, live: u32) {
    for n in 0..puts {
        drop(store.keyspace().put(format!("key-{}", n % live), vec![n as u8; 3000]).unwrap());
    }
    store.sync().unwrap();
}

#[test]
fn a_reader_shows_the_state_of_the_last_refresh() {
    let disk = SimDisk::new(1);
    let mut options = options(&disk);
    options.policy = Policy::Periodic(Duration::from_secs(3600));
    let store = Store::builder(DIR).options(options).open().unwrap();
    let keys = store.keyspace();
    keys.put("a", "1").unwrap().blocking_wait().unwrap();
    let reader = reader(&disk);
    let seen = reader.keyspace();
    assert_eq!(reader.position(), store.durable());
    assert_eq!(seen.get("a").unwrap().as_deref(), Some(&b"1"[..]));

    keys.put("a", "2").unwrap().blocking_wait().unwrap();
    let mut batch = Batch::new();
    let other = store.create_keyspace("other").unwrap();
    batch.put(&other, "b", "1").unwrap();
    batch.delete(&keys, "a").unwrap();
    store.write(&batch).unwrap().blocking_wait().unwrap();
    drop(keys.put("accepted", "only").unwrap());
    assert_eq!(seen.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(reader.find_keyspace("other").is_none());

    let snapshot = reader.snapshot().unwrap();
    assert_eq!(reader.refresh().unwrap(), store.durable());
    assert_eq!(seen.get_many(&["a", "accepted"]).unwrap(), [None, None]);
    let theirs = reader.find_keyspace("other").unwrap();
    assert_eq!(theirs.get("b").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(snapshot.get(&seen, "a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(snapshot.get(&theirs, "b").unwrap(), None);
    store.sync().unwrap();
    reader.refresh().unwrap();
    assert_eq!(read(&reader), content(&store));

    drop(keys.delete_range("a".."z").unwrap());
    store.drop_keyspace("other").unwrap();
    let again = store.create_keyspace("other").unwrap();
    again.put("b", "2").unwrap().blocking_wait().unwrap();
    reader.refresh().unwrap();
    assert!(matches!(theirs.get("b"), Err(Error::KeyspaceDropped { .. })));
    assert_eq!(read(&reader), content(&store));
    reader.close();
    assert!(matches!(seen.get("a"), Err(Error::Closed)));
    assert!(matches!(reader.refresh(), Err(Error::Closed)));
    assert!(matches!(reader.snapshot(), Err(Error::Closed)));
}

/// The reader applied nothing since cleaning began. It missed records, deletes and drops.
#[test]
fn a_reader_catches_up_when_cleaning_dropped_what_it_did_not_see() {
    for checkpoint in [false, true] {
        let disk = SimDisk::new(1);
        let store = writer(&disk);
        let keys = store.keyspace();
        for name in ["dropped", "replaced", "kept"] {
            let space = store.create_keyspace(name).unwrap();
            drop(space.put("key", name).unwrap());
        }
        drop(keys.put("deleted", "value").unwrap());
        drop(keys.put("still", "there").unwrap());
        overwrite(&store, 10, 10);
        if checkpoint {
            assert!(store.checkpoint().unwrap());
        }
        let reader = reader(&disk);
        let before = read(&reader);
        assert_eq!(before, content(&store));
        let snapshot = reader.snapshot().unwrap();

        drop(keys.delete("deleted").unwrap());
        store.drop_keyspace("dropped").unwrap();
        store.drop_keyspace("replaced").unwrap();
        let replaced = store.create_keyspace("replaced").unwrap();
        drop(replaced.put("new", "value").unwrap());
        overwrite(&store, 400, 5);
        assert!(store.compact().unwrap().segments > 0);
        store.keyspace().put("last", "value").unwrap().blocking_wait().unwrap();

        // A get refreshes by itself.
        let still = reader.keyspace().get("still").unwrap();
        assert_eq!(still.as_deref(), Some(&b"there"[..]));
        reader.refresh().unwrap();
        assert_eq!(reader.position(), store.durable());
        assert_eq!(read(&reader), content(&store));
        assert_eq!(reader.keyspaces(), ["default", "kept", "replaced"]);
        let expired = snapshot.get(&reader.keyspace(), "still");
        assert!(matches!(expired, Err(Error::SnapshotExpired)), "{expired:?}");
        // It follows on.
        overwrite(&store, 20, 20);
        reader.refresh().unwrap();
        assert_eq!(read(&reader), content(&store));
    }
}

/// The reader has applied everything. Cleaning dropped what a snapshot reads.
#[test]
fn a_snapshot_reads_the_copies_that_cleaning_made() {
    let disk = SimDisk::new(1);
    let store = writer(&disk);
    let keys = store.keyspace();
    drop(keys.put("copied", "value").unwrap());
    drop(keys.put("overwritten", "before").unwrap());
    let reader = reader(&disk);
    reader.refresh().unwrap();
    overwrite(&store, 100, 5);
    reader.refresh().unwrap();
    let seen = reader.keyspace();
    let snapshot = reader.snapshot().unwrap();
    let mut scan = snapshot.scan::<[u8]>(&seen, ..).unwrap();
    assert_eq!(scan.next().unwrap().unwrap().0, "copied");
    overwrite(&store, 100, 5);
    // Last, so that cleaning does not move it.
    keys.put("overwritten", "after").unwrap().blocking_wait().unwrap();
    reader.refresh().unwrap();
    assert!(store.compact().unwrap().segments > 0);
    // The first poll finds the copies, the second that records were dropped.
    reader.refresh().unwrap();
    reader.refresh().unwrap();

    assert_eq!(seen.get("copied").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(snapshot.get(&seen, "copied").unwrap().as_deref(), Some(&b"value"[..]));
    let gone = snapshot.get(&seen, "overwritten");
    assert!(matches!(gone, Err(Error::SnapshotExpired)), "{gone:?}");
    // The keys that the scan looked up already, too.
    let gone = scan.find_map(|entry| entry.err());
    assert!(matches!(gone, Some(Error::SnapshotExpired)), "{gone:?}");
    assert_eq!(seen.get("overwritten").unwrap().as_deref(), Some(&b"after"[..]));
    assert_eq!(read(&reader), content(&store));
}

#[test]
fn a_reader_follows_a_writer_that_was_killed_and_opened_again() {
    let disk = SimDisk::new(1);
    let reader = {
        drop(writer(&disk));
        reader(&disk)
    };
    for round in 0..4 {
        let killed = Arc::new(AtomicBool::new(false));
        let kill = Arc::clone(&killed);
        let process = HookedDisk::new(Arc::new(disk.process()), move |call: &Call<'_>| match kill
            .load(SeqCst)
        {
            false => Ok(()),
            true => {
                let broken = std::io::ErrorKind::BrokenPipe.into();
                Err(esker_disk::Error::new(call.op, call.path, None, broken))
            }
        });
        let mut options = options(&disk);
        options.disk = Arc::new(process);
        options.policy = Policy::Periodic(Duration::from_secs(3600));
        let store = Store::builder(DIR).options(options).open().unwrap();
        overwrite(&store, 30 * round, 5);
        store.keyspace().put("round", round.to_le_bytes()).unwrap().blocking_wait().unwrap();
        let durable = content(&store);
        if round % 2 == 0 {
            reader.refresh().unwrap();
        }
        drop(store.keyspace().put("lost", "value").unwrap());
        killed.store(true, SeqCst);
        drop(store);
        reader.refresh().unwrap();
        assert_eq!(read(&reader), durable);

        let store = writer(&disk);
        assert!(store.durable() >= reader.position());
        overwrite(&store, 100, 7);
        store.compact().unwrap();
        reader.refresh().unwrap();
        assert_eq!(reader.position(), store.durable());
        assert_eq!(read(&reader), content(&store));
        store.close().unwrap();
    }
}

#[test]
fn what_is_no_store_is_refused_and_nothing_is_written() {
    let disk = SimDisk::new(1);
    let write = |call: &Call<'_>| matches!(call.op, Op::Write | Op::Sync | Op::Rename);
    let hooked = HookedDisk::new(Arc::new(disk.process()), move |call: &Call<'_>| {
        assert!(!write(call), "it writes");
        Ok(())
    });
    let open = || open_reader(Arc::new(hooked.clone()));
    let absent = open().map(drop);
    assert!(matches!(absent, Err(Error::Log(esker_log::Error::NotALog { .. }))), "{absent:?}");
    Log::builder(DIR).disk(Arc::new(disk.process())).open().unwrap().close().unwrap();
    let plain = open().map(drop);
    assert!(matches!(plain, Err(Error::Log(esker_log::Error::WrongComponent { .. }))), "{plain:?}");
}

#[test]
fn a_thread_follows_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    let store = Store::open(&dir).unwrap();
    let reader = ReadOnlyStore::builder(&dir).follow(true).open().unwrap();
    for n in 0..20u32 {
        let position = store.keyspace().put("key", n.to_le_bytes()).unwrap();
        let position = position.blocking_wait().unwrap();
        let start = Instant::now();
        while reader.position() < position {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        let value = reader.keyspace().get("key").unwrap();
        assert_eq!(value.as_deref(), Some(&n.to_le_bytes()[..]));
    }
    let keys = reader.keyspace();
    drop(reader);
    assert!(matches!(keys.get("key"), Err(Error::Closed)));
}
