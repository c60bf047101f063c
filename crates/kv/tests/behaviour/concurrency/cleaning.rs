//! Writes in the middle of cleaning: at each of its reads and writes another write comes between.
//! No overwritten value and no deleted key comes back, in memory or after a crash.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use esker_disk::sim::{Persist, SimDisk};
use esker_disk::{Op, Result};
use esker_kv::{Batch, Keyspace, Options, Policy, Store, WriteError};
use esker_log::Engine;
use esker_testkit::{Call, Hook, HookedDisk, SplitMix64};

const DIR: &str = "/store";
const KEYS: u64 = 40;

thread_local! {
    /// Whether this thread is in a hook.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Writes to the store at the disk calls of another operation.
struct Interloper {
    keyspace: Mutex<Option<Keyspace>>,
    state: Mutex<State>,
}

struct State {
    /// How many more writes to make.
    left: u32,
    rng: SplitMix64,
    model: BTreeMap<u64, Vec<u8>>,
    made: u32,
}

fn write(keyspace: &Keyspace, state: &mut State) {
    let key = state.rng.below(KEYS);
    if state.rng.percent(70) {
        let mut value = state.rng.next().to_le_bytes().to_vec();
        value.resize(8 + state.rng.index(3000), 7);
        drop(keyspace.put(key.to_be_bytes(), &value).unwrap());
        state.model.insert(key, value);
    } else {
        drop(keyspace.delete(key.to_be_bytes()).unwrap());
        state.model.remove(&key);
    }
}

/// The hook of the disk.
struct Between(Arc<Interloper>);

impl Hook for Between {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        if matches!(call.op, Op::Read | Op::Write) && !INSIDE.replace(true) {
            let keyspace = self.0.keyspace.lock().unwrap().clone();
            if let Some(keyspace) = keyspace {
                let mut state = self.0.state.lock().unwrap();
                if state.left > 0 {
                    state.left -= 1;
                    state.made += 1;
                    write(&keyspace, &mut state);
                }
            }
            INSIDE.set(false);
        }
        Ok(())
    }
}

fn content(keyspace: &Keyspace) -> BTreeMap<u64, Vec<u8>> {
    let number = |key: &[u8]| u64::from_be_bytes(key.try_into().unwrap());
    let entries = keyspace.scan(..).unwrap().map(|entry| entry.unwrap());
    entries.map(|(key, value)| (number(&key), value.to_vec())).collect()
}

fn options(disk: Arc<dyn esker_disk::Disk>, engine: &Engine) -> Options {
    let mut options = Options::on(disk);
    options.log.policy = Policy::Periodic(Duration::from_secs(60));
    options.log.segment_size = 64 << 10;
    (options.cache_bytes, options.log.read_cache) = (0, 0);
    options.clean = false;
    options.log.engine = Some(engine.clone());
    options
}

#[test]
fn nothing_comes_back_that_is_overwritten_while_it_is_moved() {
    let mut made = 0;
    let mut copied = 0;
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let state = State { left: 0, rng: SplitMix64::new(seed), model: BTreeMap::new(), made: 0 };
        let interloper =
            Arc::new(Interloper { keyspace: Mutex::new(None), state: Mutex::new(state) });
        let hooked: Arc<dyn esker_disk::Disk> =
            Arc::new(HookedDisk::new(Arc::new(disk.process()), Between(Arc::clone(&interloper))));
        let engine = Engine::manual();
        let open = || Store::builder(DIR).options(options(Arc::clone(&hooked), &engine)).open();
        let mut store = open().unwrap();
        for _ in 0..6 {
            for _ in 0..60 {
                write(&store.keyspace(), &mut interloper.state.lock().unwrap());
            }
            // After opening, the records are in the files alone, so that cleaning reads them there.
            store.close().unwrap();
            store = open().unwrap();
            let keyspace = store.keyspace();
            *interloper.keyspace.lock().unwrap() = Some(keyspace.clone());
            interloper.state.lock().unwrap().left = 30;
            copied += store.compact().unwrap().records_copied;
            *interloper.keyspace.lock().unwrap() = None;
            let state = interloper.state.lock().unwrap();
            assert_eq!(content(&keyspace), state.model, "seed {seed}");
            assert_eq!(keyspace.len(), state.model.len() as u64);
        }
        if seed % 2 == 0 {
            store.sync().unwrap();
        }
        let before = interloper.state.lock().unwrap().model.clone();
        let durable = store.durable() == store.accepted();
        disk.power_cut(Persist::Random);
        engine.stop();
        drop(store);
        disk.power_on();
        let engine = Engine::manual();
        let options = options(Arc::new(disk.process()), &engine);
        let store = Store::builder(DIR).options(options).open().unwrap();
        if durable {
            assert_eq!(content(&store.keyspace()), before, "seed {seed} after a crash");
        }
        store.close().unwrap();
        engine.stop();
        made += interloper.state.lock().unwrap().made;
    }
    assert!(made > 500 && copied > 500, "{made} writes came between, {copied} records were copied");
}

/// Bug: a pass followed each pass for as long as callers overwrote.
#[test]
fn compacting_ends_while_callers_overwrite() {
    const WRITES: u64 = 6000;
    let (disk, engine) = (SimDisk::new(1), Engine::manual());
    let left = Arc::new(AtomicU64::new(0));
    let store: Arc<OnceLock<Store>> = Arc::default();
    // Every tenth record stays live.
    let write = |store: &Store, n: u64| {
        let key = if n.is_multiple_of(10) { n } else { 0 };
        drop(store.keyspace().put(key.to_be_bytes(), vec![n as u8; 3000]).unwrap());
    };
    let (writes, writer) = (Arc::clone(&left), Arc::clone(&store));
    let hook = move |call: &Call<'_>| {
        // A pass ends with a change of the manifest. Some segments are written before the next.
        let manifest = call.path.file_stem().is_some_and(|stem| stem == "manifest");
        let more = call.op == Op::Exchange && manifest && writes.load(Relaxed) > 0;
        if let Some(store) = writer.get().filter(|_| more && !INSIDE.replace(true)) {
            for _ in 0..60 {
                write(store, writes.fetch_sub(1, Relaxed));
            }
            INSIDE.set(false);
        }
        Ok(())
    };
    let hooked = Arc::new(HookedDisk::new(Arc::new(disk.process()), hook));
    let open = || Store::builder(DIR).options(options(Arc::clone(&hooked) as _, &engine)).open();
    let store = store.get_or_init(|| open().unwrap());
    (WRITES..WRITES + 300).for_each(|n| write(store, n));
    store.sync().unwrap();
    left.store(WRITES, Relaxed);
    let done = store.compact().unwrap();
    let left = left.swap(0, Relaxed);
    assert!(done.segments >= 10, "{done:?}");
    let passes = (WRITES - left) / 60;
    assert!((1..15).contains(&passes), "{passes} passes, {done:?}");
    store.close().unwrap();
    engine.stop();
}

/// A value is durable, and the value that replaced it is not: the first one must survive cleaning.
#[test]
fn a_durable_value_is_kept_until_its_successor_is_durable() {
    let disk = SimDisk::new(1);
    let engine = Engine::manual();
    let store =
        Store::builder(DIR).options(options(Arc::new(disk.process()), &engine)).open().unwrap();
    let keys = store.keyspace();
    for key in 0..100u64 {
        drop(keys.put(key.to_be_bytes(), vec![1; 3000]).unwrap());
    }
    store.sync().unwrap();
    for key in 0..100u64 {
        drop(keys.put(key.to_be_bytes(), [2]).unwrap());
    }
    assert!(store.durable() < store.accepted());
    assert!(store.compact().unwrap().segments > 0);
    disk.power_cut(Persist::Nothing);
    engine.stop();
    drop((store, keys));
    disk.power_on();
    let engine = Engine::manual();
    let options = options(Arc::new(disk.process()), &engine);
    let store = Store::builder(DIR).options(options).open().unwrap();
    assert_eq!(store.keyspace().len(), 100);
    store.close().unwrap();
    engine.stop();
}

/// The value of a condition is read from the disk, without a lock. Meanwhile another caller puts
/// another value.
#[test]
fn a_condition_is_decided_at_the_moment_of_ordering() {
    let disk = SimDisk::new(1);
    let engine = Engine::manual();
    let other: Arc<Mutex<Option<Keyspace>>> = Arc::default();
    let hook = {
        let other = Arc::clone(&other);
        move |call: &Call<'_>| {
            if call.op == Op::Read
                && let Some(keyspace) = other.lock().unwrap().take()
            {
                drop(keyspace.put("key", "other").unwrap());
            }
            Ok(())
        }
    };
    let hooked: Arc<dyn esker_disk::Disk> =
        Arc::new(HookedDisk::new(Arc::new(disk.process()), hook));
    let open = || Store::builder(DIR).options(options(Arc::clone(&hooked), &engine)).open();
    let store = open().unwrap();
    drop(store.keyspace().put("key", "old").unwrap());
    store.close().unwrap();
    let store = open().unwrap();
    let keys = store.keyspace();
    let mut batch = Batch::new();
    batch.expect_value(&keys, "key", Some("old")).unwrap();
    batch.put(&keys, "key", "new").unwrap();
    *other.lock().unwrap() = Some(keys.clone());
    let written = store.write(&batch).map(drop);
    assert!(other.lock().unwrap().is_none(), "the value was read from the disk");
    let failed = matches!(written, Err(WriteError::ConditionFailed { condition: 0 }));
    assert!(failed, "{written:?}");
    assert_eq!(keys.get("key").unwrap().as_deref(), Some(&b"other"[..]));
    store.close().unwrap();
    engine.stop();
}
