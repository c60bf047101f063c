//! A reader of the directory of a store, while threads write it and it is cleaned.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_disk::sim::SimDisk;
use esker_kv::{Batch, Options, Policy, ReadError, ReadOnlyStore, Seq, Snapshot, Store};

use crate::concurrency::threads::StopAtEnd;

const KEYS: u64 = 40;

/// The keys of a store. The writer keeps the state at each position at which a write ended.
type State = BTreeMap<Vec<u8>, Vec<u8>>;
type History = Mutex<BTreeMap<Seq, Arc<State>>>;

fn key(n: u64) -> Vec<u8> {
    (n % KEYS).to_be_bytes().to_vec()
}

/// Writes one batch after the other. Keeps what the store is after each, by its position.
fn write(store: &Store, history: &History, stop: &AtomicBool) {
    let keys = store.keyspace();
    let mut state = State::new();
    let mut n = 0u64;
    while !stop.load(SeqCst) {
        n += 1;
        let mut batch = Batch::new();
        for step in 0..1 + n % 4 {
            let key = key(n * 7 + step * 3);
            if (n + step).is_multiple_of(5) {
                batch.delete(&keys, &key).unwrap();
                state.remove(&key);
            } else {
                let mut value = n.to_be_bytes().to_vec();
                value.resize(200 + (n % 900) as usize, step as u8);
                batch.put(&keys, &key, &value).unwrap();
                state.insert(key, value);
            }
        }
        // Copies that cleaning makes may come between. They change nothing.
        // Locked before: a reader may see the batch as soon as it is written.
        let mut history = history.lock().unwrap();
        let last = store.write(&batch).unwrap().seq();
        history.insert(last, Arc::new(state.clone()));
        while history.len() > 20_000 {
            history.pop_first();
        }
    }
}

/// Creates keyspaces, fills them, and drops them.
fn keyspaces(store: &Store, stop: &AtomicBool) {
    let mut n = 0u32;
    while !stop.load(SeqCst) {
        n += 1;
        let name = format!("space-{}", n % 3);
        let keys = store.create_keyspace(&name).unwrap();
        for key in 0..20u32 {
            drop(keys.put(key.to_be_bytes(), n.to_be_bytes()).unwrap());
        }
        store.sync().unwrap();
        store.drop_keyspace(&name).unwrap();
    }
}

fn state_of(reader: &ReadOnlyStore, snapshot: &Snapshot) -> Result<State, ReadError> {
    let scan = snapshot.scan(&reader.keyspace(), ..)?;
    let entries: Vec<(Bytes, _)> = scan.collect::<Result<_, _>>()?;
    Ok(entries.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
}

fn check(follow: bool, cache_bytes: u64, pause: Duration) {
    let disk = SimDisk::new(1);
    let mut options = Options::on(Arc::new(disk.process()));
    options.log.policy = Policy::Periodic(Duration::from_millis(2));
    options.log.segment_size = 128 << 10;
    let store = Store::builder("/store").options(options).open().unwrap();
    let history = History::default();
    history.lock().unwrap().insert(Seq::ZERO, Arc::default());
    let stop = AtomicBool::new(false);
    let builder = ReadOnlyStore::builder("/store").disk(Arc::new(disk.process()));
    let reader = builder.follow(follow).cache_bytes(cache_bytes).open().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| write(&store, &history, &stop));
        scope.spawn(|| keyspaces(&store, &stop));
        let _stop = StopAtEnd(&stop);
        let (mut checked, mut expired) = (0, 0);
        let mut position = Seq::ZERO;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(4) || checked < 20 {
            assert!(start.elapsed() < Duration::from_secs(60), "{checked} checked");
            std::thread::sleep(pause);
            if !follow {
                reader.refresh().unwrap();
            }
            assert!(reader.position() >= position);
            position = reader.position();
            let snapshot = reader.snapshot().unwrap();
            for name in reader.keyspaces() {
                let Some(keys) = reader.find_keyspace(&name).filter(|_| name != "default") else {
                    continue;
                };
                match keys.get(0u32.to_be_bytes()) {
                    Ok(_) | Err(ReadError::KeyspaceDropped { .. }) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            match state_of(&reader, &snapshot) {
                Ok(state) => {
                    let history = history.lock().unwrap();
                    let expected = history.range(..=snapshot.seq()).next_back();
                    let Some((at, expected)) = expected else { continue };
                    assert!(state == **expected, "at {} after {at}", snapshot.seq());
                    checked += 1;
                }
                Err(ReadError::SnapshotExpired) => expired += 1,
                Err(error) => panic!("{error:?}"),
            }
            // Not a point in time, but never an error.
            for n in 0..KEYS {
                reader.keyspace().get(key(n)).unwrap();
            }
        }
        assert!(checked >= 20, "{checked} checked, {expired} expired");
    });
    store.sync().unwrap();
    let durable = store.durable();
    let start = Instant::now();
    // The writer stores how far it is durable after its callers know.
    while reader.refresh().unwrap() < durable {
        assert!(start.elapsed() < Duration::from_secs(60), "{} of {durable}", reader.position());
        std::thread::sleep(Duration::from_millis(1));
    }
    let snapshot = reader.snapshot().unwrap();
    let last = Arc::clone(history.lock().unwrap().last_key_value().unwrap().1);
    assert!(state_of(&reader, &snapshot).unwrap() == *last);
    assert!(store.stats().reclaimed.segments > 10, "cleaning hardly ran");
    let names = reader.keyspaces();
    assert_eq!(names, store.keyspaces());
    store.close().unwrap();
}

#[test]
fn a_reader_sees_a_prefix_of_the_durable_writes() {
    check(false, 1 << 20, Duration::ZERO);
}

#[test]
fn a_reader_that_follows_sees_a_prefix_of_the_durable_writes() {
    check(true, 0, Duration::ZERO);
}

/// One thread refreshes while another reads.
#[test]
fn a_large_batch_becomes_visible_at_once() {
    const PUTS: u32 = 2000;
    let disk = SimDisk::new(1);
    let store = Store::builder("/store").options(Options::on(Arc::new(disk.process()))).open();
    let store = store.unwrap();
    let reader = ReadOnlyStore::builder("/store").disk(Arc::new(disk.process())).open().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = StopAtEnd(&stop);
            for n in 0..40u32 {
                let mut batch = Batch::new();
                for key in 0..PUTS {
                    batch.put(&store.keyspace(), key.to_be_bytes(), n.to_be_bytes()).unwrap();
                }
                store.write(&batch).unwrap().blocking_wait().unwrap();
                reader.refresh().unwrap();
            }
        });
        while !stop.load(SeqCst) {
            let snapshot = reader.snapshot().unwrap();
            let value = |key: u32| {
                snapshot.get(&reader.keyspace(), key.to_be_bytes()).unwrap().map(|v| v.to_vec())
            };
            assert_eq!(value(0), value(PUTS - 1), "at {}", snapshot.seq());
        }
    });
    assert_eq!(reader.keyspace().len(), u64::from(PUTS));
}

/// Cleaning drops records before the reader has applied them.
#[test]
fn a_reader_that_lags_sees_a_prefix_of_the_durable_writes() {
    check(false, 0, Duration::from_millis(100));
}
