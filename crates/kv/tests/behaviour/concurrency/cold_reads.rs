//! Values that are read from the disk, while the record is moved or replaced between the lookup and
//! the read. A hook of the disk forces that moment.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use esker_disk::Op;
use esker_disk::sim::SimDisk;
use esker_kv::{Batch, Options, Policy, ReadError, Store, StoreError, WriteError};
use esker_testkit::{Call, HookedDisk};
use parking_lot::Mutex;

type StoreCall = Box<dyn FnOnce(&Store) + Send>;

/// The call before the next read of a segment, once; and the number of such reads.
#[derive(Default, Clone)]
struct AtRead(Arc<Mutex<Option<(Store, StoreCall)>>>, Arc<AtomicU32>);

impl AtRead {
    fn arm(&self, store: &Store, work: impl FnOnce(&Store) + Send + 'static) {
        *self.0.lock() = Some((store.clone(), Box::new(work)));
    }

    fn is_armed(&self) -> bool {
        self.0.lock().is_some()
    }
}

const KEYS: u32 = 60;

fn value(n: u32) -> Vec<u8> {
    vec![n as u8; 3000]
}

/// A store whose oldest segments are mostly dead, with nothing in memory.
fn store(change: impl Fn(&mut Options)) -> (Store, AtRead) {
    let disk = SimDisk::new(1);
    let at_read = AtRead::default();
    let hook = at_read.clone();
    let hooked = HookedDisk::new(Arc::new(disk.process()), move |call: &Call<'_>| {
        let is_value = call.op == Op::Read && call.path.extension().is_some_and(|end| end == "seg");
        hook.1.fetch_add(u32::from(is_value), Relaxed);
        let work = if is_value { hook.0.lock().take() } else { None };
        if let Some((store, work)) = work {
            work(&store);
        }
        Ok(())
    });
    let mut options = Options::on(Arc::new(hooked));
    options.log.policy = Policy::Periodic(Duration::from_secs(3600));
    options.log.segment_size = 64 << 10;
    (options.cache_bytes, options.log.read_cache, options.clean) = (0, 0, false);
    change(&mut options);
    let open = || Store::builder(Path::new("/store")).options(options.clone()).open().unwrap();
    let store = open();
    let keys = store.keyspace();
    for n in 0..KEYS {
        drop(keys.put(n.to_be_bytes(), value(n)).unwrap());
        for _ in 0..3 {
            drop(keys.put("dead", value(n)).unwrap());
        }
    }
    store.close().unwrap();
    drop((store, keys));
    (open(), at_read)
}

/// Moves the live records of the oldest segments, and writes over these.
fn compact(store: &Store) {
    assert!(store.compact().unwrap().segments > 0);
    for n in 0..KEYS {
        drop(store.keyspace().put("dead", value(n)).unwrap());
    }
    store.sync().unwrap();
}

#[test]
fn a_value_is_read_that_cleaning_moved_after_the_lookup() {
    let (store, at_read) = store(|_| {});
    let keys = store.keyspace();
    let first = 0u32.to_be_bytes();
    at_read.arm(&store, compact);
    assert_eq!(keys.get(first).unwrap().as_deref(), Some(&*value(0)));
    assert!(!at_read.is_armed());

    let (store, at_read) = self::store(|_| {});
    at_read.arm(&store, compact);
    let found = store.keyspace().get_many(&[first, 1u32.to_be_bytes()]).unwrap();
    assert_eq!(found[0].as_deref(), Some(&*value(0)));
    assert_eq!(found[1].as_deref(), Some(&*value(1)));
    assert!(!at_read.is_armed());

    let (store, at_read) = self::store(|_| {});
    at_read.arm(&store, compact);
    assert_eq!(store.keyspace().get_durable(first).unwrap().as_deref(), Some(&*value(0)));
    assert!(!at_read.is_armed());

    // Too large to be read together.
    let (store, at_read) = self::store(|options| options.log.segment_size = 1 << 20);
    let names = ["large a", "large b", "large c"];
    let large = |n: usize| vec![n as u8; 600_000];
    for (n, name) in names.iter().enumerate() {
        drop(store.keyspace().put(name, large(n)).unwrap());
        (0..4).for_each(|_| drop(store.keyspace().put("dead", large(9)).unwrap()));
    }
    store.sync().unwrap();
    at_read.arm(&store, compact);
    let found = store.keyspace().get_many(&names).unwrap();
    assert!(found.iter().enumerate().all(|(n, found)| found.as_deref() == Some(&*large(n))));
    assert!(!at_read.is_armed());

    // Deleted, and its record dropped.
    let (store, at_read) = self::store(|_| {});
    at_read.arm(&store, move |store| {
        store.keyspace().delete(first).unwrap().blocking_wait().unwrap();
        compact(store);
    });
    // It happens during the call, so both values are right.
    let found = store.keyspace().get(first).unwrap();
    assert!(found.is_none_or(|found| *found == *value(0)));
    assert!(!at_read.is_armed());
}

/// The records move, and stay where they were until the scan ends.
#[test]
fn a_scan_reads_values_that_cleaning_moves_meanwhile() {
    let (store, at_read) = store(|options| options.snapshot_timeout = Duration::from_secs(600));
    let keys = store.keyspace();
    let cleaning = Arc::new(Mutex::new(None));
    let (thread, before) = (Arc::clone(&cleaning), store.accepted());
    at_read.arm(&store, move |store| {
        let cleaned = store.clone();
        *thread.lock() = Some(std::thread::spawn(move || compact(&cleaned)));
        let began = Instant::now();
        while store.accepted() == before {
            assert!(began.elapsed() < Duration::from_secs(60), "nothing was copied");
            std::thread::yield_now();
        }
        // Enough for all of it, if it did not wait.
        std::thread::sleep(Duration::from_millis(500));
    });
    let mut scan = keys.scan(.."d").unwrap();
    for n in 0..KEYS {
        let (key, found) = scan.next().unwrap().unwrap();
        assert_eq!((&*key, &*found), (&n.to_be_bytes()[..], &*value(n)));
        assert_eq!(store.stats().reclaimed.segments, 0, "the scan pins what it reads");
    }
    assert!(scan.next().is_none() && !at_read.is_armed());
    drop(scan);
    cleaning.lock().take().unwrap().join().unwrap();
    assert!(store.stats().reclaimed.segments > 0);
}

/// The records move, and are dropped, because the scan expires at once.
#[test]
fn a_scan_whose_records_are_dropped_returns_no_wrong_value() {
    for reads in 0..20 {
        let (store, at_read) = store(|options| options.snapshot_timeout = Duration::ZERO);
        let mut scan = store.keyspace().scan(.."d").unwrap();
        for n in 0..reads {
            assert_eq!(*scan.next().unwrap().unwrap().1, *value(n));
        }
        at_read.arm(&store, compact);
        // Some were read ahead.
        let mut n = reads;
        let end = loop {
            match scan.next().unwrap() {
                Ok((key, found)) => {
                    assert_eq!((&*key, &*found), (&n.to_be_bytes()[..], &*value(n)));
                }
                Err(error) => break error,
            }
            n += 1;
        };
        assert!(matches!(end, ReadError::SnapshotExpired), "{end:?}");
        assert!(scan.next().is_none() && !at_read.is_armed());
    }
    // One that is read by itself.
    let (store, at_read) = store(|options| options.snapshot_timeout = Duration::ZERO);
    let first = 0u32.to_be_bytes();
    let mut scan = store.keyspace().scan(first..=first).unwrap();
    at_read.arm(&store, compact);
    let next = scan.next().unwrap();
    assert!(matches!(next, Err(ReadError::SnapshotExpired)), "{next:?}");
    assert!(scan.next().is_none() && !at_read.is_armed());
}

#[test]
fn a_scan_reads_neighbours_together() {
    let (store, at_read) = store(|_| {});
    let keys = store.keyspace();
    let before = at_read.1.load(Relaxed);
    let found: Vec<_> = keys.scan(.."d").unwrap().map(|next| next.unwrap().1).collect();
    assert!(found.iter().enumerate().all(|(n, found)| **found == *value(n as u32)));
    let reads = at_read.1.load(Relaxed) - before;
    assert!(reads < KEYS / 3, "{reads} reads for {KEYS} keys");
}

/// Guards: a loop without an end, while another writer changes a key of a condition each time.
#[test]
fn a_batch_whose_conditions_change_each_time_is_refused() {
    fn change_at_reads(left: u32, at_read: AtRead, store: &Store) {
        let hook = at_read.clone();
        at_read.arm(store, move |store| {
            drop(store.keyspace().put("changing", "value").unwrap());
            if left > 0 {
                change_at_reads(left - 1, hook, store);
            }
        });
    }
    let (store, at_read) = store(|_| {});
    let keys = store.keyspace();
    drop(keys.put("changing", "value").unwrap());
    let mut batch = Batch::new();
    batch.expect_exists(&keys, "changing", true).unwrap();
    // Its value is on the disk. When it is read, the other key was looked at.
    batch.expect_value(&keys, 0u32.to_be_bytes(), Some(value(0))).unwrap();
    batch.put(&keys, "key", "value").unwrap();
    // Not for ever, so that a loop without an end succeeds at last.
    change_at_reads(1000, at_read.clone(), &store);
    let refused = store.write(&batch);
    assert!(matches!(refused, Err(WriteError::Contended)), "{refused:?}");
    assert!(keys.get("key").unwrap().is_none(), "nothing was written");
    let pinned = futures_util::FutureExt::now_or_never(store.write_async(&batch));
    assert!(matches!(pinned, Some(Err(WriteError::Contended))), "{pinned:?}");
    drop(at_read.0.lock().take());
    store.write(&batch).unwrap().blocking_wait().unwrap();
    assert_eq!(keys.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Guards: a deadlock of `close` with the commit that resolves a ticket.
#[test]
fn a_store_is_closed_by_the_waker_of_a_ticket() {
    struct Close(Store, std::sync::mpsc::Sender<Result<(), StoreError>>);
    impl std::task::Wake for Close {
        fn wake(self: Arc<Self>) {
            self.1.send(self.0.close()).unwrap();
        }
    }
    let (store, _) = store(|options| options.log.policy = Policy::Always);
    let (sender, closed) = std::sync::mpsc::channel();
    let waker = Arc::new(Close(store.clone(), sender)).into();
    let mut ticket = store.keyspace().put("key", "value").unwrap();
    let mut cx = std::task::Context::from_waker(&waker);
    if std::future::Future::poll(std::pin::Pin::new(&mut ticket), &mut cx).is_pending() {
        closed.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
        assert!(ticket.is_durable());
        assert!(matches!(store.close(), Err(StoreError::Closed)));
    }
}
