//! Many logs on a full disk: they keep one reserve together.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use esker_consensus::{Ballot, Error, LogManager, ManagerError, Mode, Slot, StorageError, logs_on};
use esker_disk::sim::SimDisk;

use crate::fixture::{HIGHER, LOW};
use crate::manager::{DIR, committed, key, options, value_of};

const MIB: u64 = 1 << 20;
const LOGS: u64 = 12;

/// Every log is truncated under a snapshot, and gives its space back, one after the other. Then all
/// accept again. What they had committed above the floor is there.
#[test]
fn every_log_frees_space_in_one_reserve() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = options(&disk);
    options.log.reserve = Some(MIB);
    options.mutable_size = MIB;
    disk.set_capacity(Some(24 * MIB));
    let manager = LogManager::builder(DIR).options(options).max_open(4).open().unwrap();
    let write = |number: u64, slot: u64| {
        let log = manager.get(key(number))?;
        let value = [value_of(log.key(), slot), vec![7; 4000]].concat();
        Ok::<_, Error>(log.learn(Slot(slot), LOW, &value)?.blocking_wait()?)
    };
    let is_full = |error: &Error| matches!(error, Error::Storage(StorageError::Log(cause)) if cause.is_no_space());
    let mut ends = [0; LOGS as usize];
    let mut refused = 0;
    while refused < LOGS {
        refused = 0;
        for number in 0..LOGS {
            match write(number, ends[number as usize]) {
                Ok(()) => ends[number as usize] += 1,
                Err(error) if is_full(&error) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    assert!(ends.iter().all(|end| *end > 10), "{ends:?}");
    for log in logs_on(Arc::new(disk.clone()), DIR).unwrap().unwrap() {
        assert!(disk.contents(&log.dir.join("reserve")).is_err(), "it has one of its own");
    }
    // Opening and closing takes nothing of it.
    for number in 0..5 * LOGS {
        drop(manager.get(key(number % LOGS)).unwrap());
    }
    let reserve = disk.contents(&Path::new(DIR).join("registry/reserve")).unwrap().len() as u64;
    assert!(reserve >= 15 * MIB / 16, "{reserve}");
    for number in 0..LOGS {
        let log = manager.get(key(number)).unwrap();
        let last = ends[number as usize] - 1;
        log.truncate_before(Slot(last)).unwrap().blocking_wait().unwrap();
        log.maintenance().reclaim().unwrap();
    }
    for number in 0..LOGS {
        write(number, ends[number as usize]).unwrap();
        let log = manager.get(key(number)).unwrap();
        for slot in ends[number as usize] - 1..=ends[number as usize] {
            let value = [value_of(log.key(), slot), vec![7; 4000]].concat();
            assert_eq!(committed(&log, slot), value);
        }
    }
    manager.close_all().unwrap();
    engine.stop();
}

/// A promise that a volatile accept raised is in no record. Bug: where the full disk had no room
/// for the last checkpoint, a close that succeeded lost it, and a stale accept was admitted.
#[test]
fn a_volatile_promise_outlives_a_close_on_a_full_disk() {
    for evicted in [false, true] {
        let disk = SimDisk::new(1);
        let (mut options, engine) = options(&disk);
        options.mode = Mode::Volatile;
        let builder = || LogManager::builder(DIR).options(options.clone()).max_open(1);
        let manager = builder().open().unwrap();
        let log = manager.get("a").unwrap();
        log.promise(LOW, Slot(0)).unwrap().blocking_wait().unwrap();
        log.accept(Slot(0), HIGHER, b"x").unwrap().blocking_wait().unwrap();
        log.truncate_from(Slot(0)).unwrap().blocking_wait().unwrap();
        assert_eq!(log.promised(), Some(HIGHER));
        drop(log);
        drop(manager.get("b").unwrap());
        let log = manager.get("a").unwrap();
        assert_eq!(log.promised(), Some(HIGHER));
        // Once more, with no room for a checkpoint, not even in what is allocated already.
        disk.set_capacity(Some(disk.used()));
        let mut free = Slot(0);
        for size in [60_000, 1] {
            let learn = |slot| {
                let ticket = log.learn(slot, LOW, &vec![7; size])?;
                Ok::<_, Error>(ticket.blocking_wait()?)
            };
            while learn(free).is_ok() {
                free.0 += 1;
            }
        }
        let higher = Ballot { number: 9, node: 1 };
        log.accept(free, higher, b"x").unwrap().blocking_wait().unwrap();
        log.truncate_from(free).unwrap().blocking_wait().unwrap();
        drop(log);
        if evicted {
            // There is no room to create it.
            drop(manager.get("b"));
        } else {
            assert!(manager.close("a").unwrap());
        }
        disk.set_capacity(None);
        assert_eq!(manager.get("a").unwrap().promised(), Some(higher));
        engine.stop();
    }
}

/// A removal that the full disk has no room to announce. Bug: the log was closed before that, and
/// lost what only memory had: a vote.
#[test]
fn a_removal_that_cannot_be_announced_loses_nothing() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = options(&disk);
    (options.mode, options.log.reserve) = (Mode::Volatile, Some(0));
    let manager = LogManager::builder(DIR).options(options).open().unwrap();
    let log = manager.get("a").unwrap();
    log.accept(Slot(3), HIGHER, b"vote").unwrap().blocking_wait().unwrap();
    // Not even in what is allocated already.
    disk.set_capacity(Some(disk.used()));
    for size in [60_000, 1] {
        let learn = |slot| {
            let ticket = log.learn(slot, LOW, &vec![7; size])?;
            Ok::<_, Error>(ticket.blocking_wait()?)
        };
        (100..).find(|slot| learn(Slot(size as u64 + *slot)).is_err());
    }
    drop(log);
    (0..300).for_each(|number| drop(manager.get(key(number))));
    let refused = manager.remove("a");
    assert!(
        matches!(&refused, Err(ManagerError::Storage(StorageError::Log(error))) if error.is_no_space()),
        "{refused:?}"
    );
    let log = manager.get("a").unwrap();
    assert_eq!(log.read(Slot(3), &log.pin()).unwrap().value(), b"vote");
    assert_eq!(log.promised(), Some(HIGHER));
    drop(log);
    disk.set_capacity(None);
    assert!(manager.remove("a").unwrap());
    assert!(!manager.has("a").unwrap());
    engine.stop();
}
