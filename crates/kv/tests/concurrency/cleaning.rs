//! Writes in the middle of cleaning: at each of its reads and writes another write comes between.
//! No overwritten value and no deleted key comes back, in memory or after a crash.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use esker_disk::sim::{Persist, SimDisk};
use esker_disk::{Op, Result};
use esker_kv::{Keyspace, Options, Policy, Store};
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
    keyspace: OnceLock<Keyspace>,
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
        let Some(keyspace) = self.0.keyspace.get() else { return Ok(()) };
        if matches!(call.op, Op::Read | Op::Write) && !INSIDE.replace(true) {
            let mut state = self.0.state.lock().unwrap();
            if state.left > 0 {
                state.left -= 1;
                state.made += 1;
                write(keyspace, &mut state);
            }
            INSIDE.set(false);
        }
        Ok(())
    }
}

fn content(keyspace: &Keyspace) -> BTreeMap<u64, Vec<u8>> {
    let number = |key: &[u8]| u64::from_be_bytes(key.try_into().unwrap());
    let entries = keyspace.scan::<[u8]>(..).unwrap().map(|entry| entry.unwrap());
    entries.map(|(key, value)| (number(&key), value.to_vec())).collect()
}

fn options(disk: Arc<dyn esker_disk::Disk>, engine: &Engine) -> Options {
    let mut options = Options::on(disk);
    options.policy = Policy::Periodic(Duration::from_secs(60));
    options.segment_size = 64 << 10;
    options.cache_bytes = 0;
    options.clean = false;
    options.engine = Some(engine.clone());
    options
}

/// Requirements: MB-10.
#[test]
fn nothing_comes_back_that_is_overwritten_while_it_is_moved() {
    let mut made = 0;
    let mut copied = 0;
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let state = State { left: 0, rng: SplitMix64::new(seed), model: BTreeMap::new(), made: 0 };
        let interloper =
            Arc::new(Interloper { keyspace: OnceLock::new(), state: Mutex::new(state) });
        let hooked = HookedDisk::new(Arc::new(disk.process()), Between(Arc::clone(&interloper)));
        let engine = Engine::manual();
        let store = Store::builder(DIR).options(options(Arc::new(hooked), &engine)).open().unwrap();
        let keyspace = store.keyspace();
        for _ in 0..6 {
            for _ in 0..60 {
                write(&keyspace, &mut interloper.state.lock().unwrap());
            }
            store.sync().unwrap();
            interloper.state.lock().unwrap().left = 30;
            let _ = interloper.keyspace.set(keyspace.clone());
            copied += store.compact().unwrap().records_copied;
            interloper.state.lock().unwrap().left = 0;
            let state = interloper.state.lock().unwrap();
            assert_eq!(content(&keyspace), state.model, "seed {seed}");
            assert_eq!(keyspace.len(), state.model.len() as u64);
        }
        if seed % 2 == 0 {
            store.sync().unwrap();
        }
        let before = interloper.state.lock().unwrap().model.clone();
        let durable = store.durable() == store.logical();
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

/// A value is durable, and the value that replaced it is not: the first one must survive cleaning.
/// Requirements: MB-10, M-13.
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
    assert!(store.durable() < store.logical());
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
