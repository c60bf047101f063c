//! Initialising the state machine of a key.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use esker_consensus::{Error, LogManager, Slot};

use crate::manager::{accept, commit, manager, open};

/// The slots that a state machine applied, each with the number of times.
fn initialise(manager: &LogManager, key: &str) -> BTreeMap<u64, u32> {
    let (mut upto, mut applied) = (Vec::new(), BTreeMap::new());
    let (log, restored) = manager
        .init::<Error>(
            key,
            |snapshot| {
                snapshot.read_to_end(&mut upto).unwrap();
                Ok(())
            },
            |entry| {
                *applied.entry(entry.slot().0).or_insert(0) += 1;
                Ok(())
            },
        )
        .unwrap();
    if let Ok(bytes) = <[u8; 8]>::try_from(&*upto) {
        for slot in 0..=u64::from_le_bytes(bytes) {
            *applied.entry(slot).or_insert(0) += 1;
        }
    }
    assert_eq!(restored.next.0, applied.len() as u64);
    drop(log);
    applied
}

fn once(slots: u64) -> BTreeMap<u64, u32> {
    (0..slots).map(|slot| (slot, 1)).collect()
}

/// The callbacks run each time, whether the log is open or not, and apply each slot once.
#[test]
fn each_slot_is_applied_once_whether_the_log_is_open_or_not() {
    let mut managed = manager(4);
    let mut next = 0;
    for round in 0..8 {
        assert_eq!(initialise(&managed.manager, "a"), once(next), "round {round}");
        let held = managed.manager.get("a").unwrap();
        assert_eq!(initialise(&managed.manager, "a"), once(next), "round {round}, open");
        for slot in next..next + 5 {
            accept(&held, slot).unwrap();
            commit(&held, slot).unwrap();
        }
        next += 5;
        if round % 2 == 0 {
            let at = next - 2;
            held.snapshots().create(Slot(at), &at.to_le_bytes()[..]).unwrap();
            held.snapshots().keep(2).unwrap();
            held.snapshots().truncate_through(held.snapshots().list().unwrap()[0]).unwrap();
        }
        drop(held);
        if round % 3 == 2 {
            managed.manager.close_all().unwrap();
            managed = open(&managed.disk.clone(), 4);
        }
    }
}

#[test]
fn one_caller_of_a_key_initialises_it_at_a_time() {
    let managed = manager(1);
    let log = managed.manager.get("a").unwrap();
    for slot in 0..50 {
        accept(&log, slot).unwrap();
        commit(&log, slot).unwrap();
    }
    drop(log);
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (managed, inside) = (&managed, &inside);
            scope.spawn(move || {
                for round in 0..5 {
                    // Another key makes the log of this one close in between.
                    drop(managed.manager.get(format!("other {thread} {round}")).unwrap());
                    let mut seen = 0;
                    let initialised = managed.manager.init::<Error>(
                        "a",
                        |_| panic!("there is no snapshot"),
                        |entry| {
                            if seen == 0 {
                                assert_eq!(inside.fetch_add(1, SeqCst), 0);
                            }
                            assert_eq!(entry.slot().0, seen);
                            std::thread::yield_now();
                            seen += 1;
                            if seen == 50 {
                                inside.fetch_sub(1, SeqCst);
                            }
                            Ok(())
                        },
                    );
                    initialised.unwrap();
                    assert_eq!(seen, 50);
                }
            });
        }
    });
    assert_eq!(managed.manager.stats().unwrap().active_references, 0);
}

/// An error of a callback comes back, the reference is released, and it can be repeated.
#[test]
fn a_failed_initialisation_can_be_repeated() {
    let managed = manager(2);
    let log = managed.manager.get("a").unwrap();
    accept(&log, 0).unwrap();
    commit(&log, 0).unwrap();
    drop(log);
    let failed = managed.manager.init::<Error>("a", |_| Ok(()), |_| Err(Error::NoSnapshot));
    assert!(matches!(failed, Err(Error::NoSnapshot)));
    assert_eq!(managed.manager.stats().unwrap().active_references, 0);
    assert_eq!(initialise(&managed.manager, "a"), once(1));
}
