//! References and the limit of open logs.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_consensus::{AcceptError, LogManager, ManagerError, Mode, OpenError, Slot, StorageError};
use esker_disk::sim::SimDisk;

use crate::fixture::{LOW, MODES};
use crate::manager::{DIR, accept, commit, committed, key, manager, options, value_of};

#[test]
fn references_are_counted_and_released() {
    let managed = manager(10);
    let manager = &managed.manager;
    let stats = || {
        let stats = manager.stats().unwrap();
        (stats.total_logs, stats.open_logs, stats.active_references)
    };
    assert_eq!(stats(), (0, 0, 0));
    let first = manager.get("a").unwrap();
    assert_eq!(stats(), (1, 1, 1));
    let (second, third) = (manager.get("a").unwrap(), first.clone());
    assert_eq!(stats(), (1, 1, 3));
    // It is one log: each sees what the others wrote.
    accept(&first, 0).unwrap();
    commit(&second, 0).unwrap();
    assert_eq!(committed(&third, 0), value_of(b"a", 0));
    drop((first, second));
    assert_eq!(stats(), (1, 1, 1));
    let panicked = std::thread::spawn(move || {
        let _held = third;
        panic!("while it holds the reference");
    });
    assert!(panicked.join().is_err());
    assert_eq!(stats(), (1, 1, 0));
    let guards: Vec<_> = (0..21).map(|_| manager.get("a").unwrap()).collect();
    assert!(manager.stats().unwrap().looks_leaked());
    drop(guards);
    assert!(!manager.stats().unwrap().looks_leaked());
}

#[test]
fn an_idle_log_makes_room_and_one_in_use_never_does() {
    let managed = manager(5);
    let manager = &managed.manager;
    let held = manager.get(key(0)).unwrap();
    for number in 1..20 {
        accept(&manager.get(key(number)).unwrap(), 0).unwrap();
        assert!(manager.stats().unwrap().open_logs <= 5);
    }
    assert!(manager.get_if_open(key(0)).is_some());
    accept(&held, 0).unwrap();
    // The ones that were used last are open.
    for number in 16..20 {
        assert!(manager.get_if_open(key(number)).is_some(), "{number}");
    }
    assert!(manager.get_if_open(key(1)).is_none());
    // A log that is used stays, and the ones that are not go.
    drop(manager.get(key(49)).unwrap());
    let used = (*manager.get(key(16)).unwrap()).clone();
    for number in 50..60 {
        drop(manager.get(key(number)).unwrap());
        drop(manager.get(key(16)).unwrap());
    }
    assert!(used.read(Slot(0), &used.pin()).is_ok(), "it was never closed");
    assert!(manager.get_if_open(key(16)).is_some());
    assert!((17..20).all(|number| manager.get_if_open(key(number)).is_none()));
}

#[test]
fn the_limit_gives_way_when_all_are_in_use() {
    let managed = manager(3);
    let held: Vec<_> = (0..8).map(|number| managed.manager.get(key(number)).unwrap()).collect();
    assert_eq!(managed.manager.stats().unwrap().open_logs, 8);
    for log in &held {
        accept(log, 0).unwrap();
    }
    drop(held);
    drop(managed.manager.get(key(9)).unwrap());
    assert_eq!(managed.manager.stats().unwrap().open_logs, 3);
}

#[test]
fn no_accepted_vote_is_lost_when_a_log_makes_room() {
    MODES.into_iter().for_each(no_accepted_vote_is_lost);
}

fn no_accepted_vote_is_lost(mode: Mode) {
    let disk = SimDisk::new(1);
    let (mut options, engine) = crate::manager::options(&disk);
    options.mode = mode;
    let manager =
        LogManager::builder(crate::manager::DIR).options(options).max_open(2).open().unwrap();
    for slot in 0..4 {
        for number in 0..10 {
            accept(&manager.get(key(number)).unwrap(), slot).unwrap();
        }
    }
    for number in 0..10 {
        let log = manager.get(key(number)).unwrap();
        assert_eq!(log.promised(), Some(LOW));
        for slot in 0..4 {
            commit(&log, slot).unwrap();
            assert_eq!(committed(&log, slot), value_of(&key(number), slot));
        }
    }
    engine.stop();
}

/// A caller may close the log itself; the next one gets it open.
#[test]
fn a_log_that_a_caller_closed_is_opened_again() {
    let managed = manager(4);
    let first = managed.manager.get("a").unwrap();
    accept(&first, 0).unwrap();
    first.close().unwrap();
    assert!(matches!(
        accept(&managed.manager.get("a").unwrap(), 1),
        Err(AcceptError::Storage(StorageError::Closed))
    ));
    drop(first);
    let again = managed.manager.get("a").unwrap();
    commit(&again, 0).unwrap();
    assert_eq!(managed.manager.stats().unwrap().open_logs, 1);
    assert!(matches!(managed.manager.close("a"), Err(ManagerError::InUse { references: 1 })));
    let outlives = (*again).clone();
    drop(again);
    assert!(managed.manager.close("a").unwrap());
    assert!(!managed.manager.close("a").unwrap());
    // A handle is no reference.
    assert!(matches!(
        outlives.accept(Slot(7), LOW, b"x"),
        Err(AcceptError::Storage(StorageError::Closed))
    ));
}

/// Any bytes are a key, and each has a log of its own.
#[test]
fn any_bytes_are_a_key() {
    let managed = manager(3);
    let long = [b'k'; 1000];
    let keys: [&[u8]; 10] = [
        b"",
        b"a",
        b"A",
        b"a/b",
        b"../registry",
        b"registry",
        b"\0",
        "ключ \u{1F511}".as_bytes(),
        &long,
        &[0xff, 0xfe],
    ];
    for key in keys {
        accept(&managed.manager.get(key).unwrap(), 0).unwrap();
    }
    for key in keys {
        let log = managed.manager.get(key).unwrap();
        commit(&log, 0).unwrap();
        assert_eq!((committed(&log, 0), &*log.options().label), (value_of(key, 0), key));
    }
    assert_eq!(managed.manager.key_count().unwrap(), keys.len());
    let refused = managed.manager.get([0; 4097]);
    assert!(matches!(refused, Err(OpenError::EntryTooLarge { size: 4097, limit: 4096 })));
    assert_eq!(managed.manager.stats().unwrap().open_logs, 3);
}

/// A log whose values only memory has does not make room where the disk has none for them: closing
/// it would lose what it accepted.
#[test]
fn a_log_that_cannot_be_saved_stays_open() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = options(&disk);
    options.mode = Mode::Volatile;
    options.mutable_size = 1 << 20;
    options.log.reserve = Some(0);
    let manager = LogManager::builder(DIR).options(options).max_open(1).open().unwrap();
    drop(manager.get("b").unwrap());
    let first = manager.get("a").unwrap();
    for slot in 0..800 {
        accept(&first, slot).unwrap();
    }
    drop(first);
    disk.set_capacity(Some(disk.used()));
    for _ in 0..3 {
        // It may be refused for want of space, too.
        drop(manager.get("b"));
        let first = manager.get_if_open("a").unwrap();
        assert_eq!(first.maintenance().scan_uncommitted(&first.pin()).unwrap().len(), 800);
    }
    disk.set_capacity(None);
    drop(manager.get("c").unwrap());
    assert!(manager.get_if_open("a").is_none());
    let first = manager.get("a").unwrap();
    for slot in 0..800 {
        commit(&first, slot).unwrap();
        assert_eq!(committed(&first, slot), value_of(b"a", slot));
    }
    engine.stop();
}
