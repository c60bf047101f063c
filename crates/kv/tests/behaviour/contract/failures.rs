//! A failed write or fsync: nothing becomes durable after it, and reopening decides.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::Op;
use esker_disk::sim::{CacheAfterFailedSync, Effect, Fault, Persist, SimDisk, SimOptions};
use esker_kv::{Batch, Error, Policy, Store, StoreError};
use esker_log::Direct;

use crate::fixture::{DIR, SimEnv, check_keys, keys_of, model, put};

fn is_poisoned<T: std::fmt::Debug>(what: &str, outcome: Result<T, impl Into<Error>>) {
    let outcome: Result<T, Error> = outcome.map_err(Into::into);
    let Err(Error::Store(StoreError::Poisoned(cause))) = &outcome else {
        panic!("{what} after a failure: {outcome:?}");
    };
    assert!(cause.to_string().contains(".seg"), "{what} does not name the file: {cause}");
}

#[test]
fn nothing_becomes_durable_after_a_failed_write_or_sync() {
    for (op, dsync) in [(Op::Write, true), (Op::Write, false), (Op::Sync, false)] {
        for cache in [CacheAfterFailedSync::NewStaysReadable, CacheAfterFailedSync::OldComesBack] {
            let disk = SimDisk::with(SimOptions::new(1).cache_after_failed_sync(cache));
            let sim_env = SimEnv::on(disk);
            let mut options = sim_env.options();
            (options.log.dsync, options.log.policy) = (dsync, Policy::Always);
            options.log.direct = if dsync { Direct::On } else { Direct::Off };
            let store = Store::builder(DIR).options(options).open().unwrap();
            let keys = store.keyspace();
            put(&keys, 0..10, 1, 100);
            store.sync().unwrap();
            let durable = store.durable();

            sim_env.disk.inject(Fault::on(op, Effect::Io).path(".seg").nth(1));
            let failed = keys.put("failed", "value").unwrap().blocking_wait();
            let is_cause = matches!(failed, Err(StoreError::Log(esker_log::Error::Io(_))));
            assert!(is_cause, "{op:?}: {failed:?}");
            assert_eq!(sim_env.disk.stats().faults, 1);
            sim_env.disk.clear_faults();
            // The disk works again. The store does not trust it.
            let mut batch = Batch::new();
            batch.put(&keys, "key", "value").unwrap();
            is_poisoned("put", keys.put("key", "value"));
            is_poisoned("delete", keys.delete(0u32.to_be_bytes()));
            is_poisoned("delete_range", keys.delete_range(..));
            is_poisoned("write", store.write(&batch));
            is_poisoned("sync", store.sync());
            is_poisoned("checkpoint", store.checkpoint());
            is_poisoned("create_keyspace", store.create_keyspace("name"));
            sim_env.engine.run();
            sim_env.engine.advance(std::time::Duration::from_secs(1));
            assert_eq!(store.durable(), durable, "{op:?}");
            for (key, value) in model(0..10, 1, 100) {
                assert_eq!(keys.get(&key).unwrap().as_deref(), Some(&*value), "durable values");
            }
            assert!(store.close().is_err());
            let sim_env = sim_env.end(store, Some(Persist::Nothing));

            let store = sim_env.open();
            let keys = store.keyspace();
            // A failed write may still have been stored.
            assert!([None, Some(&b"value"[..])].contains(&keys.get("failed").unwrap().as_deref()));
            drop(keys.delete("failed").unwrap());
            put(&keys, 10..20, 1, 100);
            store.sync().unwrap();
            let sim_env = sim_env.end(store, Some(Persist::Nothing));
            let store = sim_env.open();
            check_keys(&store.keyspace(), &model(0..20, 1, 100), "reopened");
            store.close().unwrap();
        }
    }
}

#[test]
fn short_writes_are_continued() {
    let sim_env = SimEnv::new();
    let store = sim_env.open();
    sim_env.disk.inject(Fault::on(Op::Write, Effect::Short(None)).path(".seg").percent(50));
    for n in 0..50 {
        put(&store.keyspace(), n..n + 1, 1, 9000);
        store.sync().unwrap();
    }
    assert!(sim_env.disk.stats().faults > 10);
    sim_env.disk.clear_faults();
    let sim_env = sim_env.end(store, Some(Persist::Nothing));
    let store = sim_env.open();
    assert!(keys_of(&store.keyspace()) == model(0..50, 1, 9000));
    store.close().unwrap();
}
