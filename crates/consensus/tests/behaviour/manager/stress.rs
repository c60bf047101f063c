//! Many threads on many keys with few open logs.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use esker_consensus::Slot;

use crate::manager::{accept, commit, committed, key, manager, on_real_disk, value_of};

#[test]
fn a_hundred_threads_share_twenty_keys() {
    let managed = manager(5);
    let slots: Vec<AtomicU64> = (0..20).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..100u64 {
            let (managed, slots) = (&managed, &slots);
            scope.spawn(move || {
                for round in 0..6 {
                    let number = (thread * 7 + round * 3) % 20;
                    let log = managed.manager.get(key(number)).unwrap();
                    let slot = slots[number as usize].fetch_add(1, SeqCst);
                    accept(&log, slot).unwrap();
                    drop(log);
                    // It may be another opening of the log.
                    commit(&managed.manager.get(key(number)).unwrap(), slot).unwrap();
                }
            });
        }
    });
    let stats = managed.manager.stats().unwrap();
    assert_eq!((stats.total_logs, stats.active_references), (20, 0));
    assert!(stats.open_logs <= 20);
    for (number, slots) in (0..).zip(&slots) {
        let log = managed.manager.get(key(number)).unwrap();
        for slot in 0..slots.load(SeqCst) {
            assert_eq!(committed(&log, slot), value_of(&key(number), slot));
        }
    }
    managed.manager.close_all().unwrap();
}

#[test]
fn a_hundred_references_are_released_at_once() {
    let managed = manager(2);
    let guards: Vec<_> = (0..100).map(|_| managed.manager.get("a").unwrap()).collect();
    std::thread::scope(|scope| {
        for guard in guards {
            scope.spawn(move || drop(guard));
        }
    });
    assert_eq!(managed.manager.stats().unwrap().active_references, 0);
    assert!(managed.manager.close("a").unwrap());
}

/// On a real disk, with the commit threads of the process, and closing at the end.
#[test]
fn threads_on_a_real_disk_lose_no_vote() {
    let place = tempfile::tempdir().unwrap();
    let manager = on_real_disk(&place.path().join("logs"), 4);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let manager = &manager;
            scope.spawn(move || {
                for round in 0..12 {
                    let log = manager.get(key((thread + round * 5) % 10)).unwrap();
                    // One slot for each thread and round.
                    accept(&log, thread * 12 + round).unwrap();
                }
            });
        }
    });
    manager.close_all().unwrap();
    let manager = on_real_disk(&place.path().join("logs"), 4);
    for thread in 0..8 {
        for round in 0..12 {
            let log = manager.get(key((thread + round * 5) % 10)).unwrap();
            let slot = thread * 12 + round;
            commit(&log, slot).unwrap();
            assert_eq!(committed(&log, slot), value_of(log.key(), slot));
            assert!(log.read(Slot(1000), &log.pin()).is_err());
        }
    }
    manager.close_all().unwrap();
}
