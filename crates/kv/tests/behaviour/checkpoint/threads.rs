//! Checkpoints while threads write and clean; then the process is killed, or power fails.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use esker_disk::sim::{Persist, SimDisk};
use esker_kv::{Batch, Options, Policy, Result, Store, StoreError};
use esker_testkit::SplitMix64;

use crate::fixture::{CHECKPOINT, Content, DIR, Keys, check, file};

const WRITERS: u64 = 2;
const KEYS: u64 = 300;
const ROUNDS: u64 = 6;
const TIME: Duration = Duration::from_millis(400);

/// A change that was accepted, with the number of its last record.
type Accepted = (u64, Change);

enum Change {
    /// Puts, and deletes, of keys in the default keyspace.
    Set(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    DeleteRange(Vec<u8>, Vec<u8>),
    Create(String),
    /// In the keyspace of this name.
    Put(String, Vec<u8>),
    Drop(String),
}

fn apply(content: &mut Content, change: &Change) {
    let default = content.entry("default".into()).or_default();
    match change {
        Change::Set(sets) => {
            for (key, value) in sets {
                match value {
                    Some(value) => drop(default.insert(key.clone(), value.clone())),
                    None => drop(default.remove(key)),
                }
            }
        }
        Change::DeleteRange(from, to) => default.retain(|key, _| key < from || key >= to),
        Change::Create(name) => drop(content.entry(name.clone()).or_default()),
        Change::Put(name, key) => {
            let keys = content.get_mut(name).unwrap();
            keys.insert(key.clone(), b"value".to_vec());
        }
        Change::Drop(name) => drop(content.remove(name)),
    }
}

fn options(disk: &SimDisk) -> Options {
    let mut options = Options::on(Arc::new(disk.process()));
    options.log.policy = Policy::Periodic(Duration::from_millis(2));
    options.log.segment_size = 128 << 10;
    options.cache_bytes = 1 << 20;
    options.snapshot_timeout = Duration::from_millis(100);
    options
}

fn open(disk: &SimDisk) -> Store {
    Store::builder(DIR).options(options(disk)).open().unwrap()
}

fn key(writer: u64, n: u64) -> Vec<u8> {
    let mut key = [writer.to_be_bytes(), n.to_be_bytes()].concat();
    key.resize(16 + (n % 40) as usize, 7);
    key
}

/// Writes its own keys until a write fails.
fn write(store: &Store, writer: u64, rng: &mut SplitMix64, done: &mut Vec<Accepted>) -> Result<()> {
    let keys = store.keyspace();
    loop {
        let own = key(writer, rng.below(KEYS));
        let value = |rng: &mut SplitMix64| {
            let mut value = rng.next().to_le_bytes().to_vec();
            value.resize(8 + rng.index(600), 1);
            value
        };
        match rng.below(100) {
            0..60 => {
                let value = value(rng);
                let seq = keys.put(&own, &value)?.seq().0;
                done.push((seq, Change::Set(vec![(own, Some(value))])));
            }
            60..85 => {
                let seq = keys.delete(&own)?.seq().0;
                done.push((seq, Change::Set(vec![(own, None)])));
            }
            85..99 => {
                let (other, value) = (key(writer, rng.below(KEYS)), value(rng));
                let mut batch = Batch::new();
                batch.put(&keys, &own, &value)?;
                batch.delete(&keys, &other)?;
                let seq = store.write(&batch)?.seq().0;
                done.push((seq, Change::Set(vec![(own, Some(value)), (other, None)])));
            }
            _ => {
                let to = key(writer, rng.below(KEYS));
                let seq = keys.delete_range(own.as_slice()..to.as_slice())?.seq().0;
                done.push((seq, Change::DeleteRange(own, to)));
            }
        }
    }
}

/// Creates and drops keyspaces until it fails. Returns the change whose outcome is unknown.
fn change_keyspaces(store: &Store, rng: &mut SplitMix64, done: &mut Vec<Accepted>) -> Change {
    loop {
        let name = format!("name-{}", rng.below(3));
        match store.find_keyspace(&name) {
            None => match store.create_keyspace(&name) {
                // Durable, so any number up to this one will do.
                Ok(_) => done.push((store.durable().0, Change::Create(name))),
                Err(_) => return Change::Create(name),
            },
            Some(_) if rng.percent(30) => match store.drop_keyspace(&name) {
                Ok(()) => done.push((store.durable().0, Change::Drop(name))),
                Err(_) => return Change::Drop(name),
            },
            Some(keyspace) => {
                for n in 0..rng.below(100) {
                    let key = n.to_be_bytes().to_vec();
                    match keyspace.put(&key, "value") {
                        Ok(ticket) => done.push((ticket.seq().0, Change::Put(name.clone(), key))),
                        Err(_) => return Change::Set(Vec::new()),
                    }
                }
            }
        }
    }
}

/// Runs all threads for a while, and ends them all at once. Returns what was accepted, in order,
/// and the change whose outcome is unknown.
fn live(disk: &SimDisk, round: u64, end: impl FnOnce()) -> (Vec<Accepted>, Change) {
    let store = open(disk);
    let over = AtomicBool::new(false);
    let (mut accepted, mut unknown) = (Vec::new(), None);
    std::thread::scope(|scope| {
        let (store, over) = (&store, &over);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut done = Vec::new();
                    let mut rng = SplitMix64::new(round << 8 | writer);
                    let stop = write(store, writer, &mut rng, &mut done);
                    assert!(over.load(SeqCst), "{stop:?}");
                    done
                })
            })
            .collect();
        let keyspaces = scope.spawn(move || {
            let mut done = Vec::new();
            let unknown = change_keyspaces(store, &mut SplitMix64::new(round), &mut done);
            assert!(over.load(SeqCst), "a keyspace could not be changed");
            (done, unknown)
        });
        scope.spawn(move || {
            while !over.load(SeqCst) {
                match store.compact() {
                    Ok(_) | Err(StoreError::Closed) => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    Err(error) => assert!(over.load(SeqCst), "{error:?}"),
                }
            }
        });
        let (began, mut checkpoints) = (Instant::now(), 0);
        while began.elapsed() < TIME || checkpoints < 3 {
            assert!(store.checkpoint().unwrap());
            checkpoints += 1;
            if checkpoints % 2 == 1 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        over.store(true, SeqCst);
        end();
        accepted.extend(writers.into_iter().flat_map(|writer| writer.join().unwrap()));
        let (done, last) = keyspaces.join().unwrap();
        accepted.extend(done);
        unknown = Some(last);
    });
    let reclaimed = store.stats().reclaimed;
    assert!(reclaimed.segments > 0, "cleaning ran: {reclaimed:?}");
    // Changes of one thread may have the same number; their order stays.
    accepted.sort_by_key(|(seq, _)| *seq);
    (accepted, unknown.unwrap())
}

/// The recovered state is that of all accepted changes up to the last recovered record.
#[test]
fn a_crash_after_checkpoints_under_load_loses_nothing() {
    let disk = SimDisk::new(1);
    let mut content = Content::from([("default".to_owned(), Keys::new())]);
    for round in 0..ROUNDS {
        let (accepted, unknown) = live(&disk, round, || match round % 2 {
            0 => disk.kill(),
            _ => disk.power_cut(Persist::Random),
        });
        disk.power_on();

        // The same files without the checkpoint.
        let whole = disk.fork(round);
        whole.remove(&file(CHECKPOINT)).unwrap();
        let store = open(&disk);
        let end = store.accepted().0;
        for (_, change) in accepted.iter().take_while(|(seq, _)| *seq <= end) {
            apply(&mut content, change);
        }
        let mut with_unknown = content.clone();
        apply(&mut with_unknown, &unknown);
        if store.keyspaces().len() != content.len() {
            content = with_unknown;
        }
        let stats = store.stats();
        assert!(stats.checkpoint_bytes > 0, "round {round}: the checkpoint is used");
        check(&store, &content, &format!("round {round}, {} replayed", stats.replayed));
        let other = open(&whole);
        // Cleaning may have dropped everything before the replay point.
        assert!(stats.replayed <= other.stats().replayed, "round {round}: {stats:?}");
        check(&other, &content, &format!("round {round}, without the checkpoint"));
        other.close().unwrap();
        store.close().unwrap();
    }
}
