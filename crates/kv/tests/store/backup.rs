//! Backups: what they have, where they go, and what is left when they fail.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};

use esker_disk::sim::SimDisk;
use esker_disk::{Disk, Op};
use esker_kv::{BackupError, Options, Seq, Store, StoreError, WatchError, backup_log};
use esker_log::{Engine, Error as LogError, ReadOnlyLog};
use esker_testkit::{Call, HookedDisk};

const DIR: &str = "/store";
const COPY: &str = "/copy";

fn options(disk: Arc<dyn Disk>, engine: &Engine) -> Options {
    let mut options = Options::on(disk);
    options.log.segment_size = 64 << 10;
    options.clean = false;
    options.log.engine = Some(engine.clone());
    options
}

fn open(disk: &SimDisk, engine: &Engine, dir: &str) -> Store {
    Store::builder(dir).options(options(Arc::new(disk.process()), engine)).open().unwrap()
}

type Content = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

fn content(store: &Store) -> Content {
    let of = |name: &String| {
        let keys = store.find_keyspace(name).unwrap();
        let entries = keys.scan(..).unwrap().map(|entry| entry.unwrap());
        entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    };
    store.keyspaces().into_iter().map(|name| (name.clone(), of(&name))).collect()
}

/// Overwrites keys, so that most of the oldest segments is dead, and deletes some.
fn fill(store: &Store, puts: u32, live: u32) {
    let keys = store.keyspace();
    let other = store.create_keyspace("other").unwrap();
    drop(other.put("first", "value").unwrap());
    drop(keys.put("deleted", "early").unwrap());
    for n in 0..puts {
        drop(keys.put(format!("key-{}", n % live), vec![n as u8; 3000]).unwrap());
    }
    drop(keys.delete("deleted").unwrap());
    drop(keys.delete_range("key-3".."key-5").unwrap());
    store.sync().unwrap();
}

#[test]
fn a_backup_is_a_store_with_the_same_positions() {
    let (disk, engine) = (SimDisk::new(1), Engine::manual());
    let store = open(&disk, &engine, DIR);
    fill(&store, 400, 10);
    assert!(store.compact().unwrap().segments > 0);
    drop(store.keyspace().put("last", "accepted").unwrap());
    let position = store.backup(COPY).unwrap();
    assert_eq!(position, store.accepted(), "with everything that was accepted");
    let copy = open(&disk, &engine, COPY);
    assert!(content(&copy) == content(&store));
    assert_eq!(copy.accepted(), position);
    let next = copy.keyspace().put("next", "value").unwrap().blocking_wait().unwrap();
    assert_eq!(next, position.next());
    let trimmed = copy.watch(0).map(drop);
    assert!(matches!(trimmed, Err(WatchError::Trimmed(by)) if by.oldest > Seq(1)));
    let changes = copy.watch(position).unwrap().try_next().unwrap().unwrap();
    assert_eq!((changes.len(), changes.position()), (1, next));
    copy.close().unwrap();
    // A copy of the copy, and of a store without records.
    open(&disk, &engine, "/empty").close().unwrap();
    for (dir, again) in [(COPY, "/again"), ("/empty", "/none")] {
        let from = open(&disk, &engine, dir);
        assert_eq!(from.backup(again).unwrap(), from.durable());
        let again = open(&disk, &engine, again);
        assert!(content(&again) == content(&from));
        again.close().unwrap();
        from.close().unwrap();
    }
    store.close().unwrap();
    assert!(matches!(store.backup("/late"), Err(BackupError::Store(StoreError::Closed))));
    engine.stop();
}

#[test]
fn a_directory_that_holds_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (store, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let opened = Store::open(&store).unwrap();
    opened.keyspace().put("key", "value").unwrap().blocking_wait().unwrap();
    std::fs::create_dir(&copy).unwrap();
    std::fs::write(copy.join("a file"), "").unwrap();
    for to in [&copy, &store] {
        let refused = opened.backup(to);
        assert!(matches!(&refused, Err(BackupError::NotEmpty { dir }) if dir == to), "{refused:?}");
    }
    assert_eq!(std::fs::read_dir(&copy).unwrap().count(), 1);
    std::fs::remove_file(copy.join("a file")).unwrap();
    opened.backup(&copy).unwrap();
    assert!(matches!(opened.backup(&copy), Err(BackupError::NotEmpty { .. })));
    opened.close().unwrap();
}

/// The disk has no room for the copy. The store does not notice, and the room is free again.
/// A backup that ends where the corruption begins would look complete.
#[test]
fn a_store_that_is_corrupt_has_no_backup() {
    for place in [3, 20, 40] {
        let (disk, engine) = (SimDisk::new(1), Engine::manual());
        let store = open(&disk, &engine, DIR);
        fill(&store, 55, 10);
        store.close().unwrap();
        let mut files = disk.files(Path::new(DIR)).unwrap();
        files.retain(|name| name.ends_with(".seg"));
        files.sort();
        let newest = Path::new(DIR).join(files.last().unwrap());
        disk.flip_bit(&newest, place * 512 * 8).unwrap();
        let builder = ReadOnlyLog::builder(DIR).disk(Arc::new(disk.process()));
        let log = builder.engine(engine.clone()).open().unwrap();
        let to = Store::builder(COPY).options(options(Arc::new(disk.process()), &engine));
        let refused = backup_log(&log, to);
        let is_corrupted =
            |error: &BackupError| matches!(error, BackupError::Store(StoreError::Corrupted(_)));
        assert!(refused.as_ref().is_err_and(is_corrupted), "{place}: {refused:?}");
        assert!(disk.files(Path::new(COPY)).map_or(true, |files| files.is_empty()));
    }
}

#[test]
fn a_backup_that_finds_no_room_leaves_nothing() {
    let (disk, engine) = (SimDisk::new(1), Engine::manual());
    let store = open(&disk, &engine, DIR);
    fill(&store, 400, 10);
    let before = content(&store);
    let mut refused = 0;
    for room in (0..1200).step_by(50) {
        disk.set_capacity(Some(disk.used() + (room << 10)));
        match store.backup(COPY) {
            Ok(position) => panic!("{room}: {position} fits"),
            Err(BackupError::Store(StoreError::NoSpace { .. })) => refused += 1,
            Err(error) => panic!("{room}: {error:?}"),
        }
        let left = disk.files(Path::new(COPY)).unwrap_or_default();
        assert!(left.is_empty(), "{room}: {left:?}");
        disk.set_capacity(None);
        store.keyspace().delete("absent").unwrap().blocking_wait().unwrap();
        assert!(content(&store) == before);
    }
    assert!(refused > 5, "{refused}");
    store.backup(COPY).unwrap();
    let copy = open(&disk, &engine, COPY);
    assert!(content(&copy) == before);
    copy.close().unwrap();
    store.close().unwrap();
    engine.stop();
}

/// Cleaning drops what a reader in another process was about to copy, again and again. No deleted
/// key comes back, and nothing is missing.
#[test]
fn cleaning_overtakes_a_backup_of_another_process() {
    let mut overtaken = 0;
    for seed in 0..8 {
        let (disk, engine) = (SimDisk::new(seed), Engine::manual());
        let store = open(&disk, &engine, DIR);
        fill(&store, 4000, 1000);
        let (filled, mut expected) = (store.durable(), content(&store));
        // What was written after that: the number of each record, the key, and its value.
        let changes = Arc::new(Mutex::new(Vec::<(Seq, String, Option<Vec<u8>>)>::new()));
        let passes = Arc::new(AtomicU32::new(0));
        let reads = AtomicU32::new(0);
        let polled = Arc::new(OnceLock::<ReadOnlyLog>::new());
        let is_polling = AtomicBool::new(false);
        let hook = {
            let (passes, polled) = (Arc::clone(&passes), Arc::clone(&polled));
            let (changes, store) = (Arc::clone(&changes), store.clone());
            move |call: &Call<'_>| {
                let is_segment = call.path.extension().is_some_and(|ext| ext == "seg");
                let Some(reader) = polled.get().filter(|_| call.op == Op::Read && is_segment)
                else {
                    return Ok(());
                };
                let read = reads.fetch_add(1, SeqCst);
                let is_next = read % (seed as u32 + 2) == 1 && passes.load(SeqCst) < 6;
                if !is_next || is_polling.swap(true, SeqCst) {
                    return Ok(());
                }
                let keys = store.keyspace();
                let change = |key: String, value: Option<Vec<u8>>| {
                    drop(match &value {
                        Some(value) => keys.put(&key, value).unwrap(),
                        None => keys.delete(&key).unwrap(),
                    });
                    changes.lock().unwrap().push((store.accepted(), key, value));
                };
                for n in 0..60u32 {
                    change(format!("key-{}", n % 3), Some(vec![read as u8; 3000]));
                }
                change("deleted".into(), Some(b"again".into()));
                change("deleted".into(), None);
                store.sync().unwrap();
                if store.compact().unwrap().segments > 0 {
                    passes.fetch_add(1, SeqCst);
                }
                // As a thread of the engine does: it learns what was dropped.
                reader.refresh().unwrap();
                is_polling.store(false, SeqCst);
                Ok(())
            }
        };
        let reader = HookedDisk::new(Arc::new(disk.process()), hook);
        let builder = ReadOnlyLog::builder(DIR).disk(Arc::new(reader)).read_cache(0);
        let log = builder.engine(engine.clone()).open().unwrap();
        let to = Store::builder(COPY).options(options(Arc::new(disk.process()), &engine));
        assert!(polled.set(log.clone()).is_ok());
        let position = backup_log(&log, to).unwrap();
        overtaken += u32::from(filled < position);
        let copy = open(&disk, &engine, COPY);
        assert_eq!(copy.durable(), position);
        let keys = expected.get_mut("default").unwrap();
        for (seq, key, value) in &*changes.lock().unwrap() {
            let key = key.clone().into_bytes();
            match value.as_ref().filter(|_| *seq <= position) {
                Some(value) => drop(keys.insert(key, value.clone())),
                None if *seq <= position => drop(keys.remove(&key)),
                None => {}
            }
        }
        assert!(content(&copy) == expected, "seed {seed}");
        copy.close().unwrap();
        store.close().unwrap();
        engine.stop();
    }
    assert!(overtaken > 3, "{overtaken}");
}

/// A log of records that are not a store's, and a copy that did not end.
#[test]
fn only_the_log_of_a_store_is_taken_for_one() {
    for component in [None, Some(esker_kv::UNFINISHED_BACKUP)] {
        let (disk, engine) = (SimDisk::new(1), Engine::manual());
        let mut options_of_log = esker_log::Options::default();
        options_of_log.disk = Arc::new(disk.process());
        options_of_log.engine = Some(engine.clone());
        options_of_log.component = component;
        let log = esker_log::Log::builder(DIR).options(options_of_log).open().unwrap();
        log.append(b"no record of a store").unwrap().blocking_wait().unwrap();
        let builder = ReadOnlyLog::builder(DIR).disk(Arc::new(disk.process()));
        let reader = builder.engine(engine.clone()).open().unwrap();
        let to = Store::builder(COPY).options(options(Arc::new(disk.process()), &engine));
        let is_wrong = |error: LogError| matches!(error, LogError::WrongComponent { .. });
        let Err(BackupError::Store(StoreError::Log(refused))) = backup_log(&reader, to) else {
            panic!("{component:?}: was copied")
        };
        assert!(is_wrong(refused), "{component:?}");
        assert!(disk.files(Path::new(COPY)).map_or(true, |files| files.is_empty()));
        let Err(WatchError::Store(StoreError::Log(refused))) =
            esker_kv::Watch::from_log(&reader, Seq(0))
        else {
            panic!("{component:?}: is watched")
        };
        assert!(is_wrong(refused), "{component:?}");
        assert!(esker_kv::check_records(&reader).is_err(), "{component:?}");
        log.close().unwrap();
    }
}

/// The backup of a store whose records were all dropped was a new store: its positions began again,
/// and a watch from a position of the original was refused, or missed changes.
#[test]
fn a_backup_of_a_store_without_records_has_its_position() {
    let (disk, engine) = (SimDisk::new(1), Engine::manual());
    let store = open(&disk, &engine, DIR);
    fill(&store, 40, 10);
    drop(store.keyspace().delete_range(..).unwrap());
    store.drop_keyspace("other").unwrap();
    let position = store.accepted();
    store.close().unwrap();
    // As cleaning that reaches the end of the log.
    let mut options_of_log = options(Arc::new(disk.process()), &engine).log;
    options_of_log.component = Some(esker_log::Component(*b"ESKRKV01"));
    options_of_log.must_exist = true;
    let log = esker_log::Log::builder(DIR).options(options_of_log).open().unwrap();
    log.retention().truncate_before(position.next()).unwrap();
    log.close().unwrap();
    let store = open(&disk, &engine, DIR);
    assert_eq!((store.durable(), content(&store).len()), (position, 1));
    let builder = ReadOnlyLog::builder(DIR).disk(Arc::new(disk.process()));
    let reader = builder.engine(engine.clone()).open().unwrap();
    let to = Store::builder("/other").options(options(Arc::new(disk.process()), &engine));
    assert_eq!(store.backup(COPY).unwrap(), position);
    assert_eq!(backup_log(&reader, to).unwrap(), position);
    for dir in [COPY, "/other"] {
        let copy = open(&disk, &engine, dir);
        assert_eq!(copy.durable(), position);
        assert!(content(&copy) == content(&store));
        let mut watch = copy.watch(position).unwrap();
        assert!(watch.try_next().unwrap().is_none());
        let trimmed = copy.watch(Seq(position.0 - 1)).map(drop);
        assert!(matches!(trimmed, Err(WatchError::Trimmed(by)) if by.oldest > position));
        let next = copy.keyspace().put("next", "value").unwrap().blocking_wait().unwrap();
        assert_eq!(next, position.next());
        assert_eq!(watch.try_next().unwrap().unwrap().position(), next);
        copy.close().unwrap();
        // Again from its files.
        let copy = open(&disk, &engine, dir);
        assert_eq!(copy.keyspace().get("next").unwrap().as_deref(), Some(&b"value"[..]));
        copy.close().unwrap();
    }
    store.close().unwrap();
    engine.stop();
}
