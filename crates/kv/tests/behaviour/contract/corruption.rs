//! A flipped bit in any field of a record: an error, never a wrong value.
#![allow(clippy::unwrap_used)]

use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_kv::{Error, Policy, Store, StoreError};

use crate::fixture::{CHECKPOINT, DIR, SimEnv, file, model, put, value};

const RECORDS: u32 = 60;
const LEN: usize = 3000;
/// Bytes of a record of the log before its payload, and of a payload before the key.
const RECORD_HEADER: usize = 16;
const HEADER: usize = 8;

const POLICIES: [Policy; 4] = [
    Policy::Always,
    Policy::Batch(NonZeroU64::new(3).unwrap()),
    Policy::Periodic(Duration::from_millis(10)),
    Policy::OsBuffered,
];

/// The fields of a record, as offsets from its start.
const FIELDS: [(&str, usize); 9] = [
    ("size", 1),
    ("checksum", 5),
    ("number", 8),
    ("kind", RECORD_HEADER),
    ("key length", RECORD_HEADER + 1),
    ("keyspace", RECORD_HEADER + 4),
    ("key", RECORD_HEADER + HEADER + 3),
    ("value", RECORD_HEADER + HEADER + 4),
    ("end of the value", RECORD_HEADER + HEADER + 4 + LEN),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Closed,
    /// Closed, with a checkpoint of everything.
    WithCheckpoint,
    /// Killed after everything was durable.
    Killed,
}

fn sample(policy: Policy, ended: Ending) -> SimEnv {
    let sim_env = SimEnv::on(SimDisk::new(1));
    let mut options = sim_env.options();
    options.log.policy = policy;
    let store = Store::builder(DIR).options(options).open().unwrap();
    put(&store.keyspace(), 0..RECORDS, 1, LEN);
    store.sync().unwrap();
    if ended == Ending::WithCheckpoint {
        assert!(store.checkpoint().unwrap());
    }
    if ended == Ending::Killed {
        return sim_env.end(store, None);
    }
    store.close().unwrap();
    sim_env
}

/// The segment of a record, and where the record begins in it.
fn place(disk: &SimDisk, n: u32) -> (String, usize) {
    let wanted = [&n.to_be_bytes()[..], &value(n, 1, LEN)].concat();
    let names = disk.files(Path::new(DIR)).unwrap();
    let found = names.into_iter().filter(|name| name.ends_with(".seg")).find_map(|name| {
        let bytes = disk.contents(&file(&name)).unwrap();
        let at = bytes.windows(wanted.len()).position(|window| window == wanted)?;
        Some((name, at - HEADER - RECORD_HEADER))
    });
    found.unwrap()
}

fn is_corruption(error: impl Into<Error>) -> bool {
    let error = error.into();
    matches!(error, Error::Store(StoreError::CorruptedRecord(_) | StoreError::Corrupted(_)))
}

/// Returns whether the store opened.
fn check_flipped(sample: &SimEnv, ended: Ending, victim: u32, field: (&str, usize)) -> bool {
    let case = format!("{ended:?}, record {victim}, {}", field.0);
    let sim_env = sample.fork(u64::from(victim));
    let (segment, start) = place(&sim_env.disk, victim);
    sim_env.disk.flip_bit(&file(&segment), ((start + field.1) * 8 + 3) as u64).unwrap();
    let store = match sim_env.try_open() {
        Ok(store) => store,
        Err(error) => {
            assert!(is_corruption(error.clone()), "{case}: {error:?}");
            return false;
        }
    };
    let keys = store.keyspace();
    let expected = model(0..RECORDS, 1, LEN);
    // What was never durable for sure may be cut off as a torn tail.
    let may_be_cut = ended == Ending::Killed && victim + 1 == RECORDS;
    assert!(ended == Ending::WithCheckpoint || may_be_cut, "{case}: it opened");
    let mut errors = 0;
    for (key, value) in &expected {
        match keys.get(key) {
            Ok(Some(found)) => assert!(*found == **value, "{case}: a wrong value"),
            Ok(None) => assert!(may_be_cut && *key == victim.to_be_bytes(), "{case}: {key:?}"),
            Err(error) => {
                assert!(is_corruption(error.clone()), "{case}: {error:?}");
                assert_eq!(*key, victim.to_be_bytes(), "{case}: another key");
                errors += 1;
            }
        }
    }
    assert_eq!(errors, u32::from(!may_be_cut), "{case}: not reported");
    for entry in keys.scan(..).unwrap() {
        match entry {
            Ok((key, value)) => assert!(*value == *expected[&*key], "{case}: a wrong value"),
            Err(error) => assert!(is_corruption(error.clone()), "{case}: {error:?}"),
        }
    }
    assert!(keys.scan(..).unwrap().any(|entry| entry.is_err()) != may_be_cut, "{case}");
    true
}

#[test]
fn a_flipped_bit_in_a_record_is_reported_at_opening_or_at_the_read() {
    let mut opened = 0;
    for policy in POLICIES {
        for ended in [Ending::Closed, Ending::WithCheckpoint, Ending::Killed] {
            let sample = sample(policy, ended);
            for victim in [0, RECORDS / 2, RECORDS - 1] {
                for field in FIELDS {
                    opened += u32::from(check_flipped(&sample, ended, victim, field));
                }
            }
        }
    }
    assert!(opened >= 4 * 9, "{opened} stores opened, and their reads were checked");
}

/// A write that a power cut tears is cut off, and what is written after that is kept.
#[test]
fn an_incomplete_last_record_is_cut_off() {
    let mut cut_off = 0;
    for seed in 0..20 {
        let mut sim_env = SimEnv::on(SimDisk::new(seed));
        for round in 0..3 {
            let store = sim_env.open();
            let keys = store.keyspace();
            assert_eq!(keys.len(), u64::from(10 * round), "seed {seed}");
            put(&keys, 10 * round..10 * round + 10, 1, 100);
            store.sync().unwrap();
            let at = CutPoint::During(sim_env.disk.operations());
            sim_env.disk.cut_power_at(at, Persist::Torn);
            drop(keys.put("incomplete", vec![7; 50_000]).unwrap());
            assert!(store.sync().is_err());
            sim_env = sim_env.end(store, None);
            let store = sim_env.open();
            let incomplete = store.keyspace().get("incomplete").unwrap();
            assert!(incomplete.as_deref().is_none_or(|value| value == vec![7; 50_000]));
            cut_off += u32::from(incomplete.is_none());
            drop(store.keyspace().delete("incomplete").unwrap());
            store.close().unwrap();
        }
        assert!(sim_env.disk.contents(&file(CHECKPOINT)).is_err(), "every record was read");
    }
    assert!(cut_off > 20, "{cut_off}");
}
