//! Backups of a manager: read-only as a whole, until their node has a new number.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use esker_consensus::{Error, LogManager, OpenError, ReadOnlyReason, StorageError, logs_on};
use esker_disk::Disk;
use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::Engine;

use crate::manager::{accept, commit, key, open, options};

const COPY: &str = "/copy";
const KEYS: u64 = 3;

/// A manager with three logs, of which one has no record, and its copy.
fn copied(disk: &SimDisk) {
    let managed = open(disk, 2);
    // The one without a record is open: closing it would write one.
    for number in (0..KEYS).rev() {
        let log = managed.manager.get(key(number)).unwrap();
        (0..number * 5).for_each(|slot| accept(&log, slot).unwrap());
    }
    managed.manager.backup(COPY).unwrap();
    managed.manager.close_all().unwrap();
}

fn open_copy(disk: &SimDisk, renumber: bool) -> (Result<LogManager, OpenError>, Engine) {
    let (options, engine) = options(disk);
    let builder = LogManager::builder(COPY).options(options).must_exist(true);
    (if renumber { builder.renumber() } else { builder }.open(), engine)
}

fn is_copied<T: std::fmt::Debug>(result: Result<T, impl Into<Error>>) {
    match result.map_err(Into::into) {
        Err(Error::Storage(StorageError::ReadOnly { reason: ReadOnlyReason::Copied })) => {}
        other => panic!("{other:?}"),
    }
}

/// The logs of the copy that take an accept; all of them have what was copied.
fn writable(manager: &LogManager) -> usize {
    assert_eq!(manager.keys().unwrap(), (0..KEYS).map(key).collect::<Vec<_>>());
    let mut count = 0;
    for number in 0..KEYS {
        let log = manager.get(key(number)).unwrap();
        assert_eq!(log.last_slot().map(|slot| slot.0), (number * 5).checked_sub(1));
        match log.stats().read_only {
            None => count += 1,
            Some(ReadOnlyReason::Copied) => is_copied(accept(&log, 50)),
            other => panic!("{other:?}"),
        }
    }
    count
}

/// The log of another key may exist in the original, with votes. So may that of a key without a
/// record.
#[test]
fn a_copy_takes_no_accept_and_no_other_key() {
    let disk = SimDisk::new(1);
    copied(&disk);
    for _ in 0..2 {
        let (manager, engine) = open_copy(&disk, false);
        let manager = manager.unwrap();
        assert_eq!(writable(&manager), 0);
        assert_eq!(manager.stats().unwrap().read_only, Some(ReadOnlyReason::Copied));
        is_copied(manager.get("another"));
        is_copied(manager.remove(key(1)));
        assert!(!manager.has("another").unwrap() && !manager.remove("another").unwrap());
        manager.close_all().unwrap();
        engine.stop();
    }
}

#[test]
fn a_renumbered_copy_is_an_ordinary_manager() {
    let disk = SimDisk::new(1);
    copied(&disk);
    let (manager, engine) = open_copy(&disk, true);
    let manager = manager.unwrap();
    assert_eq!(writable(&manager), KEYS as usize);
    assert_eq!(manager.stats().unwrap().read_only, None);
    accept(&manager.get("another").unwrap(), 0).unwrap();
    assert!(manager.remove(key(1)).unwrap());
    manager.close_all().unwrap();
    engine.stop();
    let (manager, engine) = open_copy(&disk, false);
    let manager = manager.unwrap();
    commit(&manager.get("another").unwrap(), 0).unwrap();
    assert_eq!(manager.key_count().unwrap(), KEYS as usize);
    manager.close_all().unwrap();
    engine.stop();
}

/// Its directory is gone: it is an error at its next use, as in any manager, and the others go on.
#[test]
fn a_missing_log_does_not_keep_the_others_from_being_renumbered() {
    let disk = SimDisk::new(1);
    copied(&disk);
    let logs = logs_on(Arc::new(disk.process()), COPY).unwrap().unwrap();
    let dir = logs.into_iter().find(|log| log.key == key(2)).unwrap().dir;
    for name in disk.files(&dir).unwrap() {
        disk.process().open_dir(&dir).unwrap().unlink(&name).unwrap();
    }
    let (manager, engine) = open_copy(&disk, true);
    let manager = manager.unwrap();
    assert!(matches!(manager.get(key(2)), Err(OpenError::MissingLog { .. })));
    accept(&manager.get(key(1)).unwrap(), 50).unwrap();
    assert!(manager.remove(key(2)).unwrap());
    engine.stop();
}

/// After a cut each log is one or the other, and no key is added before all are ordinary ones.
#[test]
fn a_cut_at_any_call_leaves_each_log_read_only_or_writable() {
    let base = SimDisk::new(1);
    copied(&base);
    let all = [Persist::Random, Persist::Nothing, Persist::Torn, Persist::Everything];
    let mut counts = [0; KEYS as usize + 1];
    for cut in 0.. {
        let disk = base.fork(cut);
        disk.cut_power_at(CutPoint::During(disk.operations() + cut), all[(cut % 4) as usize]);
        let (manager, engine) = open_copy(&disk, true);
        let is_renumbered = manager.is_ok();
        let is_over = manager.is_ok_and(|manager| manager.close_all().is_ok()) && disk.is_on();
        engine.stop();
        disk.cancel_cut();
        disk.power_on();
        let (manager, engine) = open_copy(&disk, false);
        let manager = manager.unwrap();
        let count = writable(&manager);
        assert!(!is_renumbered || count == KEYS as usize, "cut {cut}: {count}");
        match manager.stats().unwrap().read_only {
            None => assert_eq!(count, KEYS as usize, "cut {cut}"),
            Some(_) => is_copied(manager.get("another")),
        }
        counts[count] += 1;
        manager.close_all().unwrap();
        engine.stop();
        let (manager, engine) = open_copy(&disk, true);
        assert_eq!(writable(&manager.unwrap()), KEYS as usize, "cut {cut}");
        engine.stop();
        if is_over {
            break;
        }
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}
