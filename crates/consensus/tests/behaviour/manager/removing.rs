//! Removals that fail on the way, and those that are refused.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use esker_consensus::{AcceptError, ManagerError, Slot, StorageError};
use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_disk::{Disk, Op};

use crate::fixture::LOW;
use crate::manager::{DIR, Managed, accept, commit, dir_of_abc, manager, open};

/// A manager with the log of "abc", which has a vote.
fn with_a_vote() -> (Managed, SimDisk) {
    let managed = manager(4);
    accept(&managed.manager.get("abc").unwrap(), 0).unwrap();
    let disk = managed.disk.clone();
    (managed, disk)
}

/// The files of the log; none if it has no directory.
fn files(disk: &SimDisk) -> Vec<String> {
    disk.files(&dir_of_abc()).unwrap_or_default()
}

/// Runs `then` after removals that failed at the first file, the second, and so on. Each time it
/// gets a manager of its own.
fn after_each_failure(then: impl Fn(&Managed, u64)) {
    for nth in 1.. {
        let (managed, disk) = with_a_vote();
        managed.manager.close("abc").unwrap();
        disk.inject(Fault::on(Op::Unlink, Effect::Io).path("/ba7816bf").nth(nth));
        match managed.manager.remove("abc") {
            Ok(removed) => {
                assert!(removed && nth > 3, "{nth}");
                return;
            }
            Err(error) => {
                assert!(matches!(error, ManagerError::Storage(StorageError::Log(_))), "{error:?}");
            }
        }
        assert!(!managed.manager.has("abc").unwrap() && !files(&disk).is_empty());
        then(&managed, nth);
    }
}

#[test]
fn a_removal_that_failed_is_completed_by_the_next_one() {
    after_each_failure(|managed, nth| {
        assert!(managed.manager.remove("abc").unwrap(), "{nth}");
        assert_eq!(managed.disk.files(Path::new(DIR)).unwrap(), ["registry"]);
        assert!(!managed.manager.remove("abc").unwrap());
    });
}

/// A partly removed log is never opened: it might have lost a part of its promises.
#[test]
fn a_key_whose_removal_failed_gets_an_empty_log() {
    after_each_failure(|managed, nth| {
        let log = managed.manager.get("abc").unwrap();
        assert_eq!((log.promised(), log.last_slot()), (None, None), "{nth}");
        accept(&log, 3).unwrap();
        drop(log);
        managed.manager.close_all().unwrap();
        let managed = open(&managed.disk, 4);
        commit(&managed.manager.get("abc").unwrap(), 3).unwrap();
        assert_eq!(managed.manager.keys().unwrap(), [b"abc"]);
    });
}

/// Otherwise a crash leaves a key whose log has no vote, and nothing that says so.
#[test]
fn no_file_is_removed_after_an_announcement_that_may_be_lost() {
    let (managed, disk) = with_a_vote();
    managed.manager.close("abc").unwrap();
    let before = files(&disk);
    disk.inject(Fault::on(Op::Write, Effect::Io).path("/registry/").nth(1));
    for _ in 0..2 {
        assert!(
            managed
                .manager
                .remove("abc")
                .is_err_and(|error| matches!(error, ManagerError::Storage(StorageError::Log(_))))
        );
        assert!(managed.manager.get("abc").is_err());
        assert_eq!(files(&disk), before);
    }
}

/// Its files are removed only while they say whose they are. Bug: the removal was announced before
/// that was found out, and the key could neither be used nor removed from then on.
#[test]
fn a_log_that_does_not_say_what_it_is_is_refused_and_stays() {
    let (managed, disk) = with_a_vote();
    managed.manager.close("abc").unwrap();
    let note = dir_of_abc().join("note");
    disk.flip_bit(&note, 30 * 8).unwrap();
    let refused = managed.manager.remove("abc");
    let is_corrupt = matches!(
        refused,
        Err(ManagerError::Storage(StorageError::Log(esker_log::Error::Corrupted(_))))
    );
    assert!(is_corrupt, "{refused:?}");
    disk.remove(&note).unwrap();
    let refused = managed.manager.remove("abc");
    let is_unknown = matches!(
        refused,
        Err(ManagerError::Storage(StorageError::Log(esker_log::Error::WrongComponent { .. })))
    );
    assert!(is_unknown, "{refused:?}");
    // With its vote, and with app metadata again.
    commit(&managed.manager.get("abc").unwrap(), 0).unwrap();
    assert!(managed.manager.remove("abc").unwrap());
    assert_eq!(disk.files(Path::new(DIR)).unwrap(), ["registry"]);
}

/// The operator decides about quarantined files.
#[test]
fn a_log_with_quarantined_records_is_not_removed() {
    let (managed, disk) = with_a_vote();
    managed.manager.close("abc").unwrap();
    disk.process().create_dir(&dir_of_abc().join("quarantine")).unwrap();
    let before = files(&disk);
    assert!(matches!(
        managed.manager.remove("abc"),
        Err(ManagerError::Storage(StorageError::ReadOnly { .. }))
    ));
    assert_eq!(files(&disk), before);
    assert!(managed.manager.has("abc").unwrap());
    let log = managed.manager.get("abc").unwrap();
    assert_eq!(log.last_slot(), Some(Slot(0)));
    assert!(matches!(
        log.accept(Slot(1), LOW, b"x"),
        Err(AcceptError::Storage(StorageError::ReadOnly { .. }))
    ));
}

/// The operator decides about foreign files in its directory.
#[test]
fn a_directory_with_a_file_of_the_operator_stays() {
    let (managed, disk) = with_a_vote();
    let notes = dir_of_abc().join("notes.txt");
    disk.put(&notes, b"why").unwrap();
    assert!(managed.manager.remove("abc").unwrap());
    assert_eq!(files(&disk), ["notes.txt"]);
    assert!(!managed.manager.has("abc").unwrap());
    disk.remove(&notes).unwrap();
    assert_eq!(managed.manager.get("abc").unwrap().last_slot(), None);
}
