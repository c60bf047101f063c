//! A store that is open for reading, beside the one that writes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use esker_disk::sim::SimDisk;
use esker_disk::{Disk, Op};
use esker_kv::{
    Batch, Error, OpenError, Options, Policy, ReadError, ReadOnlyStore, Store, StoreError,
    UNFINISHED_BACKUP,
};
use esker_log::{Component, Engine, Error as LogError, Log};
use esker_testkit::{Call, HookedDisk};

use crate::is_closed;

const DIR: &str = "/store";

fn options(disk: &SimDisk) -> Options {
    let mut options = Options::on(Arc::new(disk.process()));
    options.log.segment_size = 64 << 10;
    options.clean = false;
    options.log.engine = Some(Engine::manual());
    options
}

fn writer(disk: &SimDisk) -> Store {
    Store::builder(DIR).options(options(disk)).open().unwrap()
}

fn reader(disk: &SimDisk) -> ReadOnlyStore {
    open_reader(Arc::new(disk.process())).unwrap()
}

fn open_reader(disk: Arc<dyn Disk>) -> Result<ReadOnlyStore, OpenError> {
    // Without a cache: values come from the log.
    ReadOnlyStore::builder(DIR).disk(disk).cache_bytes(0).engine(Engine::manual()).open()
}

type Content = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn content(store: &Store) -> Content {
    let of = |name: &String| {
        let keys = store.find_keyspace(name).unwrap();
        keys.scan(..).unwrap().map(|e| e.unwrap()).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
    };
    store.keyspaces().into_iter().map(|name| (name.clone(), of(&name))).collect()
}

fn read(store: &ReadOnlyStore) -> Content {
    let of = |name: &String| {
        let keys = store.find_keyspace(name).unwrap();
        let all: BTreeMap<_, _> = keys
            .scan(..)
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
    options.log.policy = Policy::Periodic(Duration::from_secs(3600));
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
    assert!(matches!(theirs.get("b"), Err(ReadError::KeyspaceDropped { .. })));
    assert_eq!(read(&reader), content(&store));
    reader.close();
    assert!(is_closed(seen.get("a")));
    assert!(is_closed(reader.refresh()));
    assert!(is_closed(reader.snapshot()));
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
        assert!(matches!(expired, Err(ReadError::SnapshotExpired)), "{expired:?}");
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
    let mut scan = snapshot.scan(&seen, ..).unwrap();
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
    assert!(matches!(gone, Err(ReadError::SnapshotExpired)), "{gone:?}");
    // What the scan read ahead is still right.
    let ahead = scan.map_while(Result::ok).find(|(key, _)| key == "overwritten");
    assert!(ahead.is_none_or(|(_, value)| *value == *b"before"));
    let only = "overwritten"..="overwritten";
    let gone = snapshot.scan(&seen, only).unwrap().find_map(|entry| entry.err());
    assert!(matches!(gone, Some(ReadError::SnapshotExpired)), "{gone:?}");
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
        options.log.disk = Arc::new(process);
        options.log.policy = Policy::Periodic(Duration::from_secs(3600));
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
    let Err(OpenError::Store(StoreError::Log(LogError::NotALog { .. }))) = absent else {
        panic!("{absent:?}");
    };
    disk.create_dir(Path::new(DIR)).unwrap();
    let empty = open().map(drop);
    let Err(OpenError::Store(StoreError::Log(LogError::NotALog { .. }))) = empty else {
        panic!("{empty:?}");
    };
    for (dir, component) in [("/other", Component(*b"ANOTHER!")), ("/copy", UNFINISHED_BACKUP)] {
        let log = Log::builder(dir).disk(Arc::new(disk.process())).component(component).open();
        log.unwrap().close().unwrap();
        let other = ReadOnlyStore::builder(dir).disk(Arc::new(hooked.clone())).open().map(drop);
        let Err(OpenError::Store(StoreError::Log(LogError::WrongComponent { .. }))) = other else {
            panic!("{other:?}");
        };
    }
    Log::builder(DIR).disk(Arc::new(disk.process())).open().unwrap().close().unwrap();
    let plain = open().map(drop);
    let Err(OpenError::Store(StoreError::Log(LogError::WrongComponent { .. }))) = plain else {
        panic!("{plain:?}");
    };
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
            assert!(start.elapsed() < Duration::from_secs(180));
            std::thread::sleep(Duration::from_millis(1));
        }
        let value = reader.keyspace().get("key").unwrap();
        assert_eq!(value.as_deref(), Some(&n.to_le_bytes()[..]));
    }
    let keys = reader.keyspace();
    drop(reader);
    assert!(is_closed(keys.get("key")));
}

/// Guards: versions that no reader can see, kept for each write that the reader catches up with.
#[test]
fn catching_up_takes_little_memory_for_replaced_versions() {
    let disk = SimDisk::new(1);
    let store = writer(&disk);
    overwrite(&store, 50, 5);
    let handle = Arc::new(Mutex::new(None::<ReadOnlyStore>));
    let most = Arc::new(AtomicU64::new(0));
    let (seen, max) = (Arc::clone(&handle), Arc::clone(&most));
    let hooked = HookedDisk::new(Arc::new(disk.process()), move |_: &Call<'_>| {
        if let Some(reader) = seen.lock().unwrap().as_ref() {
            max.fetch_max(reader.stats().history_bytes, SeqCst);
        }
        Ok(())
    });
    let reader = open_reader(Arc::new(hooked)).unwrap();
    *handle.lock().unwrap() = Some(reader.clone());
    let snapshot = reader.snapshot().unwrap();
    overwrite(&store, 200, 5);
    assert!(store.compact().unwrap().segments > 0);
    for n in 0..50_000u32 {
        drop(store.keyspace().put(format!("key-{}", n % 5), n.to_be_bytes()).unwrap());
    }
    store.sync().unwrap();
    reader.refresh().unwrap();
    reader.refresh().unwrap();
    assert_eq!(read(&reader), content(&store));
    let expired = snapshot.get(&reader.keyspace(), "key-0");
    assert!(matches!(expired, Err(ReadError::SnapshotExpired)), "it caught up: {expired:?}");
    let most = most.load(SeqCst);
    assert!((1..16 << 10).contains(&most), "{most} bytes");
    drop(handle.lock().unwrap().take());
}

#[test]
fn a_corrupt_log_is_an_error_for_a_reader_and_what_it_has_seen_stays() {
    let disk = SimDisk::new(1);
    let store = writer(&disk);
    let keys = store.keyspace();
    keys.put("first", "value").unwrap().blocking_wait().unwrap();
    let reader = reader(&disk);
    keys.put("second", "which is corrupt").unwrap().blocking_wait().unwrap();
    keys.put("third", "value").unwrap().blocking_wait().unwrap();
    let wanted = b"which is corrupt";
    let names = disk.files(Path::new(DIR)).unwrap();
    for name in names.iter().filter(|name| name.ends_with(".seg")) {
        let path = Path::new(DIR).join(name);
        let bytes = disk.contents(&path).unwrap();
        if let Some(at) = bytes.windows(wanted.len()).position(|part| part == wanted) {
            disk.flip_bit(&path, at as u64 * 8).unwrap();
        }
    }
    let corrupt = |error: Error| {
        assert!(matches!(error, Error::Store(StoreError::Corrupted(_))), "{error:?}");
    };
    for _ in 0..2 {
        corrupt(reader.refresh().unwrap_err().into());
        let keys = reader.keyspace();
        assert_eq!(keys.get("first").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(keys.get("third").unwrap(), None, "nothing after it is visible");
        assert_eq!(keys.scan(..).unwrap().count(), 1);
    }
    corrupt(open_reader(Arc::new(disk.process())).map(drop).unwrap_err().into());
}

const CHILD: &str = "ESKER_KV_TEST_CHILD";

/// The process that is killed: puts two keys at a time, and prints what is durable.
#[allow(clippy::print_stdout, reason = "the parent reads it")]
fn write_until_killed(dir: &str) {
    let store = Store::builder(dir).segment_size(64 << 10).open().unwrap();
    let keys = store.keyspace();
    let from = keys.get("a").unwrap().map_or(0, |a| u64::from_be_bytes((&*a).try_into().unwrap()));
    for n in from + 1.. {
        let mut batch = Batch::new();
        batch.put(&keys, "a", n.to_be_bytes()).unwrap();
        batch.put(&keys, "b", n.to_be_bytes()).unwrap();
        batch.put(&keys, "filler", [0; 500]).unwrap();
        store.write(&batch).unwrap().blocking_wait().unwrap();
        println!("\ndurable {n}");
    }
}

#[test]
fn a_reader_follows_a_process_that_is_killed_by_a_signal() {
    if let Ok(dir) = std::env::var(CHILD) {
        return write_until_killed(&dir);
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    Store::open(&dir).unwrap().close().unwrap();
    let reader = ReadOnlyStore::builder(&dir).follow(true).open().unwrap();
    let number = |key: &str| {
        let value = reader.keyspace().get(key).unwrap();
        value.map_or(0, |value| u64::from_be_bytes((&*value).try_into().unwrap()))
    };
    let mut last = 0;
    for round in 1..=3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("read_only::a_reader_follows_a_process_that_is_killed_by_a_signal")
            .env(CHILD, &dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut reported = lines
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("durable ").map(|n| n.parse::<u64>().unwrap()));
        let mut durable = reported.next().unwrap();
        while durable < last + 100 * round {
            durable = reported.next().unwrap();
            let (b, a) = (number("b"), number("a"));
            assert!(a >= b, "the state only moves on");
        }
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        // What it printed before the signal arrived.
        durable = reported.last().unwrap_or(durable);
        let began = Instant::now();
        while number("b") < durable {
            assert!(began.elapsed() < Duration::from_secs(30), "{} {durable}", number("b"));
            std::thread::sleep(Duration::from_millis(1));
        }
        reader.refresh().unwrap();
        let snapshot = reader.snapshot().unwrap();
        let at = |key| snapshot.get(&reader.keyspace(), key).unwrap().map(|value| value.to_vec());
        assert_eq!(at("a"), at("b"), "a batch is visible as a whole");
        last = durable;
    }
    let store = Store::open(&dir).unwrap();
    reader.refresh().unwrap();
    assert_eq!(read(&reader), content(&store));
    store.close().unwrap();
}

/// Bug: a reader that loaded the checkpoint made files to find out what the disk can do. A writer
/// that opened the store at that moment failed to remove them.
#[test]
fn a_reader_changes_nothing_in_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("store");
    let store = Store::open(&dir).unwrap();
    (0..1000u32).for_each(|n| drop(store.keyspace().put(n.to_be_bytes(), "value").unwrap()));
    assert!(store.checkpoint().unwrap());
    store.close().unwrap();
    drop(store);
    let changed = || std::fs::metadata(&dir).unwrap().modified().unwrap();
    let before = changed();
    std::thread::sleep(Duration::from_millis(20));
    let reader = ReadOnlyStore::open(&dir).unwrap();
    let stats = reader.stats();
    assert!(stats.checkpoint_bytes > 0 && !stats.checkpoint_corrupt);
    assert_eq!(reader.oldest().0, 1);
    assert_eq!(reader.keyspace().len(), 1000);
    assert!((30_000..stats.disk_bytes).contains(&reader.live_bytes()));
    reader.close();
    assert_eq!(changed(), before);
}

/// Bug: a writer ignored a corrupt file of app metadata, readers refused it, and `repair` found
/// nothing to do.
#[test]
fn corrupt_app_metadata_are_written_again() {
    let disk = SimDisk::new(7);
    let store = writer(&disk);
    store.keyspace().put("key", "value").unwrap().blocking_wait().unwrap();
    store.close().unwrap();
    drop(store);
    let note = Path::new(DIR).join("note");
    let whole = disk.contents(&note).unwrap();
    for at in [0, 9, 40] {
        disk.flip_bit(&note, at * 8).unwrap();
        assert_eq!(reader(&disk).keyspace().get("key").unwrap().as_deref(), Some(&b"value"[..]));
        let store = writer(&disk);
        assert!(disk.contents(&note).unwrap() == whole, "byte {at}");
        store.close().unwrap();
    }
    disk.remove(&note).unwrap();
    let Err(error) = open_reader(Arc::new(disk.process())) else { panic!("it is no store") };
    assert!(error.to_string().contains("component"), "{error}");
}

/// Guards: a log of another component that is made a store because its app metadata are corrupt.
#[test]
fn corrupt_app_metadata_of_another_component_stay() {
    let disk = SimDisk::new(7);
    let other = Component(*b"ANOTHER1");
    let log = Log::builder(DIR).disk(Arc::new(disk.process())).engine(Engine::manual());
    let log = log.component(other).open().unwrap();
    log.append([0xff; 40]).unwrap().blocking_wait().unwrap();
    log.close().unwrap();
    drop(log);
    let note = Path::new(DIR).join("note");
    disk.flip_bit(&note, 0).unwrap();
    let corrupt = disk.contents(&note).unwrap();
    let opened = Store::builder(DIR).options(options(&disk)).open();
    assert!(matches!(opened, Err(OpenError::Store(StoreError::CorruptedRecord(_)))), "{opened:?}");
    assert!(disk.contents(&note).unwrap() == corrupt);
}
