//! Closing a manager, and what others may not do with its directory.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use esker_consensus::{ConsensusLog, LogManager, ManagerError, OpenError, StorageError};
use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::InvalidOption;

use crate::manager::{DIR, accept, commit, key, manager, on_real_disk, open, options, try_open};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn closing_waits_for_references_and_names_those_that_are_left() {
    let managed = manager(10);
    let manager = &managed.manager;
    for number in 0..6 {
        accept(&manager.get(key(number)).unwrap(), 0).unwrap();
    }
    let leaked = [manager.get("leaked\n").unwrap(), manager.get("leaked\n").unwrap()];
    let error = manager.close_all_timeout(Duration::from_millis(50)).unwrap_err();
    let ManagerError::LeakedReferences { logs } = &error else { panic!("{error:?}") };
    assert_eq!(logs.iter().collect::<Vec<_>>(), [(&b"leaked\n".to_vec(), &2)]);
    assert_eq!(error.to_string(), "timeout waiting for references: 2 to \"leaked\\n\"");
    // It was not closed by force.
    accept(&leaked[0], 0).unwrap();
    assert!(matches!(manager.get("a"), Err(OpenError::Storage(StorageError::Closed))));
    assert!(manager.get_if_open("leaked\n").is_none());
    assert!(matches!(manager.close("a"), Err(ManagerError::Storage(StorageError::Closed))));
    assert!(matches!(manager.remove("a"), Err(ManagerError::Storage(StorageError::Closed))));
    assert!(matches!(manager.close_all(), Err(ManagerError::Storage(StorageError::Closed))));
    assert!(matches!(manager.keys(), Err(StorageError::Closed)));
    assert!(matches!(manager.has("a"), Err(StorageError::Closed)));
    assert!(matches!(manager.glob("*"), Err(StorageError::Closed)));
    assert!(matches!(manager.stats(), Err(StorageError::Closed)));
    assert!(matches!(manager.compact_registry(), Err(StorageError::Closed)));
    drop(leaked);
    let next = open(&managed.disk, 10);
    commit(&next.manager.get("leaked\n").unwrap(), 0).unwrap();
    next.manager.close_all().unwrap();
}

#[test]
fn closing_waits_until_a_reference_is_released() {
    let managed = manager(10);
    let held = managed.manager.get("a").unwrap();
    let released = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        accept(&held, 0).unwrap();
    });
    managed.manager.close_all().unwrap();
    released.join().unwrap();
    commit(&open(&managed.disk, 10).manager.get("a").unwrap(), 0).unwrap();
}

/// Otherwise a caller would have a log of a manager that closed, and whose directory has another.
#[test]
fn a_log_that_is_opened_while_the_manager_closes_is_refused() {
    let managed = manager(10);
    let (manager, gate) = (&managed.manager, Gate::new());
    let block = Effect::BlockReturn(gate.clone());
    // The directory of "abc": its key is in the registry by then.
    managed.disk.inject(Fault::on(Op::Write, block).path("/ba7816bf"));
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| manager.get("abc").map(drop));
        assert!(gate.wait_for(1, LONG));
        let closing = scope.spawn(|| manager.close_all_timeout(LONG));
        while !matches!(manager.close("other"), Err(ManagerError::Storage(StorageError::Closed))) {
            std::thread::yield_now();
        }
        gate.open();
        let refused = opening.join().unwrap();
        assert!(matches!(refused, Err(OpenError::Storage(StorageError::Closed))), "{refused:?}");
        closing.join().unwrap().unwrap();
    });
    // It was closed, and the key has its log.
    let next = open(&managed.disk, 10);
    accept(&next.manager.get("abc").unwrap(), 0).unwrap();
    assert_eq!(next.manager.keys().unwrap(), [b"abc"]);
}

/// The second is for all eight, not for each in turn.
#[test]
fn the_deadline_is_one_for_all() {
    let managed = manager(10);
    let held: Vec<_> = (0..8).map(|number| managed.manager.get(key(number)).unwrap()).collect();
    let begun = Instant::now();
    let error = managed.manager.close_all_timeout(Duration::from_secs(1)).unwrap_err();
    assert!(matches!(error, ManagerError::LeakedReferences { logs } if logs.len() == 8));
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    drop(held);
}

/// A second manager is refused, and so is a directory that holds something else. The directory may
/// be moved under a manager.
#[test]
fn a_directory_has_one_manager() {
    let managed = manager(10);
    accept(&managed.manager.get("a").unwrap(), 0).unwrap();
    let second = try_open(&managed.disk, 10);
    let locked = |error: &OpenError| {
        matches!(error, OpenError::Storage(StorageError::Log(esker_log::Error::Locked { .. })))
    };
    assert!(second.is_err_and(|error| locked(&error)));
    managed.manager.close_all().unwrap();

    let disk = SimDisk::new(2);
    let (options, engine) = options(&disk);
    ConsensusLog::builder(DIR).options(options.clone()).open().unwrap().close().unwrap();
    let refused = LogManager::builder(DIR).options(options.clone()).open();
    assert!(
        matches!(
            refused,
            Err(OpenError::Storage(StorageError::Log(esker_log::Error::NotALog { .. })))
        ),
        "{refused:?}"
    );
    let refused = LogManager::builder("/none").options(options).must_exist(true).open();
    assert!(refused.is_err());
    assert!(disk.files("/none".as_ref()).is_err());
    engine.stop();

    let place = tempfile::tempdir().unwrap();
    let (before, after) = (place.path().join("before"), place.path().join("after"));
    let manager = on_real_disk(&before, 1);
    accept(&manager.get("a").unwrap(), 0).unwrap();
    std::fs::rename(&before, &after).unwrap();
    accept(&manager.get("b").unwrap(), 0).unwrap();
    commit(&manager.get("a").unwrap(), 0).unwrap();
    manager.close_all().unwrap();
    assert!(!before.exists());
    let manager = on_real_disk(&after, 1);
    commit(&manager.get("b").unwrap(), 0).unwrap();
    manager.close_all().unwrap();
    let none = LogManager::builder(place.path()).max_open(0).open();
    assert!(matches!(
        none,
        Err(OpenError::InvalidOption(InvalidOption { option: "max_open", .. }))
    ));
}
