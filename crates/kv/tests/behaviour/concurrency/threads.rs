//! Threads that write, read, scan and clean.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use esker_disk::sim::SimDisk;
use esker_kv::{Batch, Options, Policy, ReadError, Store, WriteError};

const WRITERS: u64 = 3;
const KEYS: u64 = 50;
const SEGMENT: u32 = 256 << 10;

pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

fn key(writer: u64, n: u64, side: u8) -> Vec<u8> {
    [&writer.to_be_bytes()[..], &n.to_be_bytes()[..], &[side]].concat()
}

/// Each writer writes two keys with the same number, in one batch; now and then it deletes both. A
/// scan, a snapshot and a durable snapshot see both or none, at one point in time: the numbers of
/// one writer's keys, in the order in which they were written, have no gap.
#[test]
fn scans_see_one_point_in_time_while_writers_and_cleaning_run() {
    let disk = SimDisk::new(1);
    let mut options = Options::on(Arc::new(disk));
    options.log.policy = Policy::Periodic(Duration::from_millis(1));
    options.log.segment_size = SEGMENT;
    options.cache_bytes = 1 << 20;
    let store = Store::builder("/store").options(options).open().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let keys = store.keyspace();
                let mut batch = Batch::new();
                let mut next = 0u64;
                while !stop.load(SeqCst) {
                    next += 1;
                    let mut value = next.to_be_bytes().to_vec();
                    value.resize(8 + (next % 500) as usize, 1);
                    batch.clear();
                    for side in [0, 255] {
                        let key = key(writer, next % KEYS, side);
                        if next.is_multiple_of(13) {
                            batch.delete(&keys, key).unwrap();
                        } else {
                            batch.put(&keys, key, &value).unwrap();
                        }
                    }
                    drop(store.write(&batch).unwrap());
                    // Own writes are read.
                    let own = keys.get(key(writer, next % KEYS, 0)).unwrap();
                    assert_eq!(
                        own.as_deref().map(number),
                        (!next.is_multiple_of(13)).then_some(next)
                    );
                }
            });
        }
        // Also when an assertion fails.
        let _stop = StopAtEnd(&stop);
        let mut scanned = 0;
        let keys = store.keyspace();
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_secs(3) || scanned < 50 {
            let snapshot = match scanned % 2 {
                0 => store.snapshot().unwrap(),
                _ => store.durable_snapshot().unwrap(),
            };
            for writer in 0..WRITERS {
                let prefix = writer.to_be_bytes();
                let found: Vec<_> =
                    snapshot.scan_prefix(&keys, prefix).unwrap().collect::<Result<_, _>>().unwrap();
                let reverse = snapshot.scan_prefix(&keys, prefix).unwrap().rev();
                let mut reverse: Vec<_> = reverse.collect::<Result<_, _>>().unwrap();
                reverse.reverse();
                assert_eq!(found, reverse, "a snapshot changes");
                assert_eq!(found.len() % 2, 0, "half of a batch");
                let numbers: Vec<_> = found
                    .chunks(2)
                    .map(|pair| {
                        assert_eq!(pair[0].1, pair[1].1, "half of a batch");
                        number(&pair[0].1)
                    })
                    .collect();
                let Some(newest) = numbers.iter().max().copied() else { continue };
                // Every number of the last round is there, unless it was a delete. The newest
                // write may be a delete, too.
                for n in (newest.saturating_sub(KEYS - 2)).max(1)..=newest {
                    let later_delete = (newest + 1..newest + 2).any(|m| m % KEYS == n % KEYS);
                    let there = numbers.contains(&n);
                    assert!(
                        there || n.is_multiple_of(13) || later_delete,
                        "{n} of {newest} is missing"
                    );
                }
                // The snapshot and its single reads agree.
                let (key, value) = &found[found.len() / 2];
                assert_eq!(snapshot.get(&keys, key).unwrap().as_ref(), Some(value));
            }
            scanned += 1;
            match keys.scan(..).unwrap().collect::<Result<Vec<_>, _>>() {
                Ok(found) => assert_eq!(found.len() % 2, 0),
                Err(ReadError::SnapshotExpired) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    let reclaimed = store.stats().reclaimed;
    assert!(reclaimed.segments > 3, "cleaning ran beside: {reclaimed:?}");
    store.compact().unwrap();
    let entries = store.keyspace().scan(..).unwrap().map(|entry| entry.unwrap());
    let live: u64 = entries.map(|(key, value)| (key.len() + value.len() + 31) as u64).sum();
    let bytes = store.stats().disk_bytes;
    assert!(bytes <= 2 * live + 2 * u64::from(SEGMENT), "{bytes} bytes for {live} live ones");
    store.close().unwrap();
}

#[test]
fn a_counter_by_compare_and_set_loses_no_increment() {
    let disk = SimDisk::new(1);
    let store = Store::builder("/store").options(Options::on(Arc::new(disk))).open().unwrap();
    let conflicts = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let keys = store.keyspace();
                let mut done = 0;
                while done < 400 {
                    let old = keys.get("counter").unwrap();
                    let next = old.as_deref().map_or(0, number) + 1;
                    let mut batch = Batch::new();
                    batch.expect_value(&keys, "counter", old).unwrap();
                    batch.put(&keys, "counter", next.to_be_bytes()).unwrap();
                    match store.write(&batch) {
                        Ok(ticket) => drop(ticket),
                        Err(WriteError::ConditionFailed { condition: 0 }) => {
                            conflicts.fetch_add(1, SeqCst);
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    done += 1;
                }
            });
        }
    });
    let counter = store.keyspace().get("counter").unwrap().unwrap();
    assert_eq!(number(&counter), 1200, "{} conflicts", conflicts.into_inner());
    store.close().unwrap();
}
