//! When a write becomes durable, by policy, and what the options of the I/O do.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use esker_disk::sim::{Persist, SimDisk, SimOptions};
use esker_kv::{InvalidOption, OpenError, Policy, Seq, Store, StoreError, WriteError};
use esker_log::Direct;

use crate::fixture::{DIR, SimEnv, check_keys, model, put};

const PERIOD: Duration = Duration::from_millis(10);
const POLICIES: [Policy; 4] = [
    Policy::Always,
    Policy::Batch(NonZeroU64::new(5).unwrap()),
    Policy::Periodic(PERIOD),
    Policy::OsBuffered,
];

fn open(sim_env: &SimEnv, policy: Policy) -> Store {
    let mut options = sim_env.options();
    options.log.policy = policy;
    Store::builder(DIR).options(options).open().unwrap()
}

/// The number of keys that a power cut leaves, of those that are not synced.
fn left(sim_env: SimEnv, store: Store) -> u64 {
    let sim_env = sim_env.end(store, Some(Persist::Nothing));
    let store = sim_env.open();
    let left = store.keyspace().len();
    let expected = model(0..left as u32, 1, 100);
    check_keys(&store.keyspace(), &expected, "a prefix is left");
    left
}

#[test]
fn under_always_every_write_whose_ticket_resolved_survives() {
    let sim_env = SimEnv::new();
    let store = open(&sim_env, Policy::Always);
    assert_eq!(store.options().log.policy, Policy::Always);
    let before = store.stats().log.syncs;
    for n in 0..10u32 {
        let (key, value) = model(n..=n, 1, 100).pop_first().unwrap();
        store.keyspace().put(key, value).unwrap().blocking_wait().unwrap();
    }
    assert_eq!(store.stats().log.syncs - before, 10, "one sync for each write");
    put(&store.keyspace(), 10..11, 1, 100);
    assert_eq!(left(sim_env, store), 10);
}

#[test]
fn under_batch_at_most_one_less_than_a_batch_is_lost() {
    let sim_env = SimEnv::new();
    let store = open(&sim_env, POLICIES[1]);
    let before = store.stats().log.syncs;
    for n in 0..13 {
        put(&store.keyspace(), n..n + 1, 1, 100);
        sim_env.engine.run();
        assert!(store.accepted().0 - store.durable().0 <= 4);
    }
    assert_eq!(store.stats().log.syncs - before, 2, "one sync for five writes");
    assert_eq!(left(sim_env, store), 10, "what was not synced is lost");
}

/// No call follows the write.
#[test]
fn under_periodic_an_idle_store_becomes_durable_within_a_period() {
    let sim_env = SimEnv::new();
    let store = open(&sim_env, Policy::Periodic(PERIOD));
    for round in 0..5 {
        put(&store.keyspace(), round..round + 1, 1, 100);
        assert!(store.durable() < store.accepted(), "not at once");
        sim_env.engine.advance(PERIOD);
        assert_eq!(store.durable(), store.accepted(), "after one period");
        sim_env.engine.advance(10 * PERIOD);
    }
    put(&store.keyspace(), 5..7, 1, 100);
    assert_eq!(left(sim_env, store), 5);
}

#[test]
fn the_timer_of_a_period_needs_no_call() {
    let disk = SimDisk::new(1);
    let mut options = esker_kv::Options::on(std::sync::Arc::new(disk.process()));
    options.log.policy = Policy::Periodic(PERIOD);
    let store = Store::builder(DIR).options(options).open().unwrap();
    put(&store.keyspace(), 0..1, 1, 100);
    let began = Instant::now();
    while store.durable() < store.accepted() {
        assert!(began.elapsed() < Duration::from_secs(180), "it never became durable");
        std::thread::sleep(Duration::from_millis(1));
    }
    let sim_env = SimEnv::on(disk);
    assert_eq!(left(sim_env, store), 1);
}

#[test]
fn closing_and_dropping_make_everything_durable() {
    for policy in POLICIES {
        for closes in [true, false] {
            let sim_env = SimEnv::new();
            let store = open(&sim_env, policy);
            let (keys, clone) = (store.keyspace(), store.clone());
            put(&keys, 0..7, 1, 100);
            if closes {
                store.close().unwrap();
                let closed = keys.put("key", "");
                assert!(matches!(closed, Err(WriteError::Store(StoreError::Closed))));
            }
            drop(store);
            // The last handle closes it. A keyspace is not a handle.
            assert_eq!(keys.put("key", "").is_ok(), !closes);
            drop(keys.delete("key"));
            drop(clone);
            let closed = keys.put("key", "");
            assert!(matches!(closed, Err(WriteError::Store(StoreError::Closed))));
            sim_env.disk.power_cut(Persist::Nothing);
            sim_env.disk.power_on();
            let sim_env = SimEnv::on(sim_env.disk);
            let store = sim_env.open();
            check_keys(&store.keyspace(), &model(0..7, 1, 100), &format!("{policy:?} {closes}"));
            store.close().unwrap();
        }
    }
}

/// A killed process leaves writes in the page cache, which a power cut still takes.
#[test]
fn what_was_recovered_is_durable() {
    let sim_env = SimEnv::new();
    let store = open(&sim_env, Policy::OsBuffered);
    put(&store.keyspace(), 0..10, 1, 100);
    sim_env.engine.run();
    assert!(store.durable() < store.accepted(), "written, and not synced");
    let sim_env = sim_env.end(store, None);
    let store = open(&sim_env, Policy::OsBuffered);
    assert_eq!((store.keyspace().len(), store.durable()), (10, store.accepted()));
    assert_eq!(left(sim_env, store), 10);
}

/// A batch of zero writes cannot be expressed.
#[test]
fn a_period_of_zero_is_refused() {
    let sim_env = SimEnv::new();
    let mut options = sim_env.options();
    options.log.policy = Policy::Periodic(Duration::ZERO);
    let refused = Store::builder(DIR).options(options).open().map(drop);
    let Err(OpenError::InvalidOption(InvalidOption { option: "policy", .. })) = refused else {
        panic!("{refused:?}");
    };
    assert!(sim_env.disk.files(std::path::Path::new("/")).unwrap().is_empty());
    assert_eq!(NonZeroU64::new(0).map(Policy::Batch), None);
}

#[test]
fn direct_io_bypasses_the_page_cache_or_is_refused() {
    for direct in [Direct::On, Direct::Off] {
        let sim_env = SimEnv::new();
        let mut options = sim_env.options();
        options.log.direct = direct;
        let store = Store::builder(DIR).options(options).open().unwrap();
        assert_eq!(store.options().log.direct, direct);
        assert_eq!(store.stats().log.direct, direct == Direct::On);
        store.close().unwrap();
    }
    let sim_env = SimEnv::on(SimDisk::with(SimOptions::new(1).direct(false)));
    let mut options = sim_env.options();
    options.log.direct = Direct::On;
    let refused = Store::builder(DIR).options(options).open().map(drop);
    assert!(matches!(refused, Err(OpenError::Store(StoreError::Log(_)))), "{refused:?}");
    let store = sim_env.open();
    assert!(!store.stats().log.direct);
    assert_eq!(store.durable(), Seq(0));
    store.close().unwrap();
}
