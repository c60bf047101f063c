//! A checkpoint on a disk that is full, fails, or loses its power.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use esker_disk::sim::{Effect, Fault, Persist, SimDisk};
use esker_disk::{Disk, Op, Result};
use esker_kv::{Keyspace, Store, StoreError};
use esker_log::Engine;
use esker_testkit::{Call, Hook, HookedDisk};

use crate::fixture::{CHECKPOINT, DIR, Keys, SimEnv, check_keys, file, model, options, put};

#[test]
fn a_full_disk_refuses_a_checkpoint_and_keeps_the_last_one() {
    let sim_env = SimEnv::new();
    let store = sim_env.open();
    let keys = store.keyspace();
    put(&keys, 0..100, 1, 100);
    assert!(store.checkpoint().unwrap());
    put(&keys, 100..20_000, 1, 100);
    store.sync().unwrap();
    sim_env.disk.set_capacity(Some(sim_env.disk.used() + (256 << 10)));
    let refused = store.checkpoint();
    let no_space = matches!(refused, Err(StoreError::NoSpace { .. }));
    assert!(no_space, "{refused:?}");
    assert!(sim_env.disk.contents(&file("checkpoint.new")).is_err(), "it gives its space back");
    assert_eq!(keys.len(), 20_000);
    drop(keys.delete(0u32.to_be_bytes()).unwrap());
    store.sync().unwrap();
    // More than a megabyte was written since, so closing tries again.
    assert!(store.stats().log.bytes > 2 << 20);
    store.close().unwrap();

    let store = sim_env.open();
    assert_eq!(store.stats().replayed, 19_901);
    check_keys(&store.keyspace(), &model(1..20_000, 1, 100), "the last checkpoint");
    sim_env.disk.set_capacity(None);
    assert!(store.checkpoint().unwrap());
    store.close().unwrap();
}

#[test]
fn a_failed_checkpoint_leaves_the_store_and_the_last_one_usable() {
    for (op, path) in [
        (Op::Open, "checkpoint.new"),
        (Op::Size, "checkpoint.new"),
        (Op::Write, "checkpoint.new"),
        (Op::Sync, "checkpoint.new"),
        (Op::Rename, "checkpoint.new"),
    ] {
        let sim_env = SimEnv::new();
        let store = sim_env.open();
        put(&store.keyspace(), 0..100, 1, 100);
        assert!(store.checkpoint().unwrap());
        put(&store.keyspace(), 50..150, 2, 100);
        sim_env.disk.inject(Fault::on(op, Effect::Io).path(path).nth(1));
        let failed = store.checkpoint();
        let is_io = matches!(failed, Err(StoreError::Log(esker_log::Error::Io { .. })));
        assert!(is_io, "{op:?}: {failed:?}");
        assert_eq!(sim_env.disk.stats().faults, 1, "{op:?}");
        sim_env.disk.clear_faults();
        put(&store.keyspace(), 150..160, 3, 100);
        store.sync().unwrap();
        let sim_env = sim_env.end(store, None);
        let store = sim_env.open();
        assert_eq!(store.stats().replayed, 110, "{op:?}: the last checkpoint is used");
        let mut expected = model(0..50, 1, 100);
        expected.extend(model(50..150, 2, 100));
        expected.extend(model(150..160, 3, 100));
        check_keys(&store.keyspace(), &expected, &format!("{op:?}"));
        assert!(store.checkpoint().unwrap());
        store.close().unwrap();
    }
}

/// Puts keys while the first chunk is written, and cuts the power once the file has its name.
#[derive(Clone, Default)]
struct Between {
    keyspace: Arc<Mutex<Option<Keyspace>>>,
    disk: Arc<Mutex<Option<SimDisk>>>,
    renamed: Arc<AtomicBool>,
}

impl Hook for Between {
    fn before(&self, call: &Call<'_>) -> Result<()> {
        let is_ours = call.path.ends_with("checkpoint.new");
        if is_ours && call.op == Op::Write {
            let keyspace = self.keyspace.lock().unwrap().take();
            if let Some(keyspace) = keyspace {
                put(&keyspace, 0..50, 2, 100);
            }
        }
        self.renamed.fetch_or(is_ours && call.op == Op::Rename, SeqCst);
        Ok(())
    }

    fn after(&self, call: &Call<'_>, _: std::result::Result<usize, &esker_disk::Error>) {
        if call.op == Op::SyncDir
            && self.renamed.load(SeqCst)
            && let Some(disk) = self.disk.lock().unwrap().take()
        {
            disk.power_cut(Persist::Nothing);
        }
    }
}

/// Long keys that come before those of [`put`], so that a chunk is written before those are read.
fn long_keys() -> Keys {
    let key = |n: u8| [&[0, 0, 0, 0, n][..], &vec![n; 1_000_000]].concat();
    (0..4).map(|n| (key(n), vec![n])).collect()
}

#[test]
fn a_checkpoint_names_only_what_is_durable() {
    let between = Between::default();
    let disk = SimDisk::new(1);
    let hooked: Arc<dyn Disk> =
        Arc::new(HookedDisk::new(Arc::new(disk.process()), between.clone()));
    let engine = Engine::manual();
    let store = Store::builder(DIR).options(options(hooked, &engine)).open().unwrap();
    let keys = store.keyspace();
    let mut expected = long_keys();
    for (key, value) in &expected {
        drop(keys.put(key, value).unwrap());
    }
    put(&keys, 1..50, 1, 100);
    *between.keyspace.lock().unwrap() = Some(keys.clone());
    *between.disk.lock().unwrap() = Some(disk.clone());
    // The power is off when it returns.
    let _ = store.checkpoint();
    assert!(!disk.is_on(), "it was published");
    assert!(between.keyspace.lock().unwrap().is_none(), "keys were put between");
    engine.stop();
    drop((store, keys));
    disk.power_on();
    let sim_env = SimEnv::on(disk);
    assert!(sim_env.disk.contents(&file(CHECKPOINT)).is_ok());
    let store = sim_env.open();
    expected.extend(model(0..50, 2, 100));
    assert_eq!(store.stats().replayed, 50, "it is used");
    check_keys(&store.keyspace(), &expected, "after a power cut");
    store.close().unwrap();
}
