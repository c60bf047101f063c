//! A checkpoint that cannot be used: opening reads the whole log and loses nothing.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use esker_disk::sim::{Effect, Fault, Persist, SimDisk};
use esker_disk::{Disk, Op};
use esker_kv::{ReadError, ReadOnlyStore, Store, StoreError};

use crate::fixture::{
    CHECKPOINT, DIR, SimEnv, check_keys, file, keys_of, log_files, model, put, value,
};

const KEYS: u32 = 400;
const BLOCK: u64 = 4096;

/// A closed store whose checkpoint has everything but one record.
fn sample(seed: u64) -> SimEnv {
    let sim_env = SimEnv::on(SimDisk::new(seed));
    let store = sim_env.open();
    put(&store.keyspace(), 0..KEYS, 1, 100);
    assert!(store.checkpoint().unwrap());
    put(&store.keyspace(), KEYS..KEYS + 1, 1, 100);
    store.close().unwrap();
    sim_env
}

/// Opens the store, compares everything, and returns whether the checkpoint was used.
fn was_used(sim_env: &SimEnv, case: &str) -> bool {
    let store = sim_env.open();
    check_keys(&store.keyspace(), &model(0..=KEYS, 1, 100), case);
    let replayed = store.stats().replayed;
    assert!([1, u64::from(KEYS) + 1].contains(&replayed), "{case}: {replayed} records");
    store.close().unwrap();
    replayed == 1
}

/// It was not used, nothing is lost, and the next one is used.
fn is_replaced(sim_env: &SimEnv, case: &str) {
    assert!(!was_used(sim_env, case), "{case}: it was used");
    let store = sim_env.open();
    assert!(store.checkpoint().unwrap());
    store.close().unwrap();
    let store = sim_env.open();
    assert_eq!(store.stats().replayed, 0, "{case}: the next one");
    check_keys(&store.keyspace(), &model(0..=KEYS, 1, 100), case);
    store.close().unwrap();
}

#[test]
fn a_truncated_checkpoint_is_not_used() {
    let sample = sample(1);
    let len = sample.disk.contents(&file(CHECKPOINT)).unwrap().len() as u64;
    assert!(len >= 4 * BLOCK, "{len} bytes");
    assert!(was_used(&sample.fork(1), "whole"));
    for len in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, len - BLOCK] {
        let sim_env = sample.fork(len);
        sim_env.disk.truncate(&file(CHECKPOINT), len).unwrap();
        is_replaced(&sim_env, &format!("cut to {len} bytes"));
    }
}

#[test]
fn a_checkpoint_with_a_flipped_bit_is_not_used() {
    let sample = sample(2);
    let len = sample.disk.contents(&file(CHECKPOINT)).unwrap().len() as u64;
    for block in 0..len.div_ceil(BLOCK) {
        for byte in [0, 9, 33] {
            let sim_env = sample.fork(block);
            let byte = block * BLOCK + byte;
            sim_env.disk.flip_bit(&file(CHECKPOINT), byte * 8 + byte % 8).unwrap();
            assert!(!was_used(&sim_env, &format!("byte {byte}")), "byte {byte}: it was used");
        }
    }
}

#[test]
fn a_checkpoint_of_another_store_is_not_used() {
    let other = SimEnv::on(SimDisk::new(3));
    let store = other.open();
    put(&store.keyspace(), 0..KEYS / 2, 9, 100);
    assert!(store.checkpoint().unwrap());
    store.close().unwrap();
    let sim_env = sample(4);
    // One store has other records; the other has the same, and another id.
    for other in [other, sample(6)] {
        let foreign = other.disk.contents(&file(CHECKPOINT)).unwrap();
        sim_env.disk.put(&file(CHECKPOINT), &foreign).unwrap();
        is_replaced(&sim_env, "of another store");
    }
}

#[test]
fn an_unreadable_checkpoint_is_not_used() {
    let sample = sample(5);
    for op in [Op::Open, Op::Read] {
        for nth in 1..=2 {
            let sim_env = sample.fork(nth);
            sim_env.disk.inject(Fault::on(op, Effect::Io).path(CHECKPOINT).nth(nth));
            let used = was_used(&sim_env, "an I/O error");
            assert!(!used || (op, nth) == (Op::Open, 2), "{op:?} {nth}");
            sim_env.disk.clear_faults();
        }
    }
    let sim_env = sample.fork(9);
    sim_env.disk.make_unreadable(&file(CHECKPOINT), BLOCK + 100).unwrap();
    is_replaced(&sim_env, "an unreadable sector");
}

#[test]
fn a_store_that_was_repaired_uses_no_checkpoint() {
    let sim_env = sample(6);
    sim_env.disk.create_dir(&file("quarantine")).unwrap();
    assert!(!was_used(&sim_env, "repaired"));
    let store = sim_env.open();
    assert!(!store.checkpoint().unwrap(), "and writes none");
    store.close().unwrap();
}

/// An operator restores a copy of the log's files, and leaves the checkpoint in its place.
fn restore(sim_env: &SimEnv, copy: &[(String, Vec<u8>)]) {
    for (name, _) in log_files(&sim_env.disk) {
        sim_env.disk.remove(&file(&name)).unwrap();
    }
    for (name, bytes) in copy {
        sim_env.disk.put(&file(name), bytes).unwrap();
    }
}

/// A store with its older files, and the checkpoint of newer ones.
fn with_older_files() -> SimEnv {
    let sim_env = SimEnv::on(SimDisk::new(7));
    let store = sim_env.open();
    put(&store.keyspace(), 0..100, 1, 100);
    store.close().unwrap();
    let copy = log_files(&sim_env.disk);
    let store = sim_env.open();
    put(&store.keyspace(), 50..200, 2, 100);
    assert!(store.checkpoint().unwrap());
    store.close().unwrap();
    restore(&sim_env, &copy);
    sim_env
}

#[test]
fn a_checkpoint_of_records_that_the_log_does_not_have_is_not_used() {
    let sim_env = with_older_files();
    let store = sim_env.open();
    assert_eq!(store.stats().replayed, 100);
    check_keys(&store.keyspace(), &model(0..100, 1, 100), "older files");
    store.close().unwrap();
}

/// Later the log has other records under the numbers that the checkpoint names.
#[test]
fn a_checkpoint_of_records_that_the_log_does_not_have_is_not_used_later() {
    let sim_env = with_older_files();
    let store = sim_env.open();
    put(&store.keyspace(), 100..400, 3, 100);
    drop(store.keyspace().delete_range(..20u32.to_be_bytes().as_slice()).unwrap());
    let mut expected = model(20..100, 1, 100);
    expected.extend(model(100..400, 3, 100));
    store.sync().unwrap();
    let sim_env = sim_env.end(store, Some(Persist::Nothing));
    let store = sim_env.open();
    assert_eq!(keys_of(&store.keyspace()).len(), expected.len());
    check_keys(&store.keyspace(), &expected, "grown again");
    store.close().unwrap();
}

/// Two copies of a store are written, and one gets the checkpoint of the other, which has as many
/// records. They differ before the last records, or only there.
#[test]
fn a_checkpoint_of_a_copy_with_other_records_is_not_used() {
    let case = |n: usize, ours: &[u32], theirs: &[u32]| {
        let sim_env = SimEnv::on(SimDisk::new(8));
        let store = sim_env.open();
        put(&store.keyspace(), 0..100, 1, 100);
        store.close().unwrap();
        let written = |seed, numbers: &[u32]| {
            let copy = sim_env.fork(seed);
            let store = copy.open();
            put(&store.keyspace(), numbers.iter().copied(), 2, 100);
            assert!(store.checkpoint().unwrap());
            store.close().unwrap();
            copy
        };
        let (own, other) = (written(1, ours), written(2, theirs));
        let path = file(CHECKPOINT);
        own.disk.put(&path, &other.disk.contents(&path).unwrap()).unwrap();
        let case = format!("case {n}");
        let mut expected = model(0..100, 1, 100);
        expected.extend(model(ours.iter().copied(), 2, 100));
        let reader = ReadOnlyStore::builder(DIR).disk(Arc::new(own.disk.process())).open().unwrap();
        assert_eq!(reader.stats().replayed, 100 + ours.len() as u64, "{case}");
        let store = own.open();
        assert_eq!(store.stats().replayed, 100 + ours.len() as u64, "{case}");
        check_keys(&store.keyspace(), &expected, &case);
        store.close().unwrap();
    };
    let same: Vec<u32> = (500..600).collect();
    case(1, &[200], &[300]);
    case(2, &[&[200, 201][..], &same[..10]].concat(), &[&[300, 301][..], &same[..10]].concat());
    let (ours, theirs): (Vec<_>, Vec<_>) = ((200..300).collect(), (300..400).collect());
    case(3, &[&ours[..], &same].concat(), &[&theirs[..], &same].concat());
}

/// The log samples the damaged record, and uses the checkpoint all the same.
#[test]
fn a_damaged_record_costs_only_its_key() {
    const KEYS: u32 = 2000;
    for before_last in [512, 1024] {
        let sim_env = SimEnv::new();
        let store = sim_env.open();
        put(&store.keyspace(), 0..KEYS, 1, 200);
        assert!(store.checkpoint().unwrap());
        store.close().unwrap();
        let damaged = KEYS - 1 - before_last;
        let value = value(damaged, 1, 200);
        let found = log_files(&sim_env.disk).into_iter().find_map(|(name, bytes)| {
            let at = bytes.windows(value.len()).position(|window| window == value)?;
            Some((name, at as u64))
        });
        let (name, at) = found.unwrap();
        sim_env.disk.flip_bit(&file(&name), (at + 50) * 8).unwrap();
        let store = sim_env.open();
        assert_eq!(store.stats().replayed, 0, "{before_last}");
        let keys = store.keyspace();
        let read = keys.get(damaged.to_be_bytes());
        let Err(ReadError::Store(StoreError::Corrupted(_))) = read else {
            panic!("{read:?}");
        };
        assert!(keys.get(3u32.to_be_bytes()).unwrap().is_some());
        assert!(store.checkpoint().unwrap(), "{before_last}: the next one");
        store.close().unwrap();
    }
}

/// Recovery copies the last records, so that their places in the checkpoint are wrong.
#[test]
fn values_are_read_that_recovery_moved() {
    let sim_env = SimEnv::new();
    let store = sim_env.open();
    for n in 0..50 {
        put(&store.keyspace(), n..n + 1, 1, 100);
        store.sync().unwrap();
    }
    assert!(store.checkpoint().unwrap());
    let sim_env = sim_env.end(store, Some(Persist::Nothing));
    let store: Store = sim_env.open();
    assert_eq!(store.stats().replayed, 0);
    check_keys(&store.keyspace(), &model(0..50, 1, 100), "moved");
    store.close().unwrap();
    assert!(sim_env.disk.files(Path::new(DIR)).unwrap().contains(&CHECKPOINT.to_owned()));
}
