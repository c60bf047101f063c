//! A store passes the options of its log on, and refuses those that are its own.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_kv::{COMPONENT, OpenError, Options, Store};
use esker_log::Retention;

use crate::fixture::{DIR, SimEnv};

/// The commits that one sync of 40 KiB takes.
fn commits(change: fn(&mut Options)) -> u64 {
    let sim_env = SimEnv::new();
    let mut options = sim_env.options();
    change(&mut options);
    let store = Store::builder(DIR).options(options).open().unwrap();
    let before = store.stats().log.commits;
    for key in 0..40u32 {
        drop(store.keyspace().put(key.to_be_bytes(), [7; 1024]).unwrap());
    }
    store.sync().unwrap();
    let commits = store.stats().log.commits - before;
    store.close().unwrap();
    commits
}

/// One write carries one staging buffer at most.
#[test]
fn smaller_buffers_take_more_commits() {
    let small = commits(|options| options.log.buffer_size = 8 << 10);
    assert!(small >= 5 && commits(|_| {}) < 5, "{small}");
}

#[test]
fn options_that_the_store_sets_are_refused_by_name() {
    let refused = |change: fn(&mut Options)| {
        let sim_env = SimEnv::new();
        let mut options = sim_env.options();
        change(&mut options);
        match Store::builder(DIR).options(options).open().map(drop) {
            Err(OpenError::InvalidOption(refused)) => refused.option,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(|options| options.log.component = Some(COMPONENT)), "component");
    assert_eq!(refused(|options| options.log.record_limit = 4096), "record_limit");
    let ring = |options: &mut Options| options.log.retention.segments = Some(4);
    assert_eq!(refused(ring), "retention");
    assert_eq!(Options::default().log.retention, Retention::NONE);
}
