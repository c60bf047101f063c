//! Backups under full load: each is the state after a prefix of the accepted writes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use esker_kv::{Batch, Policy, Seq, Store, backup_log};
use esker_log::ReadOnlyLog;
use esker_testkit::SplitMix64;

const KEYS: u64 = 40;
const BATCH: u64 = 6;

/// A write of one thread, with its last record and the number of its records.
struct Written {
    seq: Seq,
    records: u64,
    puts: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Writes to keys of its own until the end.
fn write(store: &Store, thread: u64, end: &AtomicBool) -> Vec<Written> {
    let mut rng = SplitMix64::new(thread);
    let keys = store.keyspace();
    let mut history = Vec::new();
    let key = |n: u64| format!("{thread}-{n}").into_bytes();
    let value = |rng: &mut SplitMix64| {
        let mut value = rng.next().to_le_bytes().to_vec();
        value.resize(8 + rng.index(2000), 1);
        value
    };
    while !end.load(SeqCst) {
        let n = rng.below(KEYS);
        let (ticket, records, puts) = match rng.below(10) {
            0 | 1 => (keys.delete(key(n)).unwrap(), 0, vec![(key(n), None)]),
            2 => {
                let mut batch = Batch::new();
                let mut puts = Vec::new();
                for n in n..n + BATCH {
                    let value = value(&mut rng);
                    batch.put(&keys, key(n), &value).unwrap();
                    puts.push((key(n), Some(value)));
                }
                (store.write(&batch).unwrap(), BATCH, puts)
            }
            _ => {
                let value = value(&mut rng);
                (keys.put(key(n), &value).unwrap(), 1, vec![(key(n), Some(value))])
            }
        };
        history.push(Written { seq: ticket.seq(), records, puts });
        if history.len() % 32 == 0 {
            ticket.blocking_wait().unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    history
}

/// Ends the writers, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn check(dir: &Path, position: Seq, accepted: Seq, history: &[Vec<Written>]) {
    assert!(position >= accepted, "everything accepted before the call is there");
    let copy = Store::builder(dir).must_exist(true).open().unwrap();
    assert_eq!(copy.durable(), position);
    let mut expected = BTreeMap::new();
    for written in history.iter().flatten().filter(|written| written.records > 0) {
        let first = written.seq.0 + 1 - written.records;
        assert!(first > position.0 || written.seq <= position, "a batch is whole");
    }
    for written in history.iter().flatten().filter(|written| written.seq <= position) {
        for (key, value) in &written.puts {
            match value {
                Some(value) => expected.insert(key.clone(), value.clone()),
                None => expected.remove(key),
            };
        }
    }
    let entries = copy.keyspace().scan(..).unwrap().map(|entry| entry.unwrap());
    let found: BTreeMap<_, _> =
        entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert!(found == expected, "{} keys, {} expected", found.len(), expected.len());
    copy.close().unwrap();
}

#[test]
fn a_backup_under_load_is_a_prefix_of_the_accepted_writes() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("store");
    let policy = Policy::Periodic(Duration::from_millis(5));
    let store =
        Store::builder(&from).segment_size(64 << 10).policy(policy).cache_bytes(0).open().unwrap();
    let end = AtomicBool::new(false);
    let mut backups = Vec::new();
    let mut histories = Vec::new();
    std::thread::scope(|scope| {
        let end = &end;
        let ends = End(end);
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let store = store.clone();
                scope.spawn(move || write(&store, thread, end))
            })
            .collect();
        for n in 0..6 {
            std::thread::sleep(Duration::from_millis(100));
            let to = dir.path().join(format!("copy-{n}"));
            let (accepted, position) = match n % 2 {
                0 => (store.accepted(), store.backup(&to).unwrap()),
                _ => {
                    let log = ReadOnlyLog::open(&from).unwrap();
                    let durable = log.durable();
                    (durable, backup_log(&log, Store::builder(&to)).unwrap())
                }
            };
            backups.push((to, accepted, position));
        }
        drop(ends);
        histories.extend(writers.into_iter().map(|writer| writer.join().unwrap()));
    });
    assert!(store.stats().reclaimed.segments > 0, "cleaning ran");
    store.close().unwrap();
    for (to, accepted, position) in backups {
        check(&to, position, accepted, &histories);
    }
}
