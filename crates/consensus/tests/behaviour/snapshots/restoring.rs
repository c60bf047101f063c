//! Rebuilding a state machine: each slot is applied once, over any number of restarts.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Read;

use esker_consensus::{Mode, Slot, SnapshotError};
use esker_disk::BLOCK_BYTES;

use crate::fixture::{LOW, MODES, log};
use crate::snapshots::{Machine, commit, create, file};

#[test]
fn each_slot_is_applied_once_over_many_restarts() {
    for mode in MODES {
        let mut setting = log(mode);
        let (mut next, mut expected) = (0, None);
        for round in 0..12 {
            let (machine, restored) = Machine::restore(&setting.log).unwrap();
            assert_eq!(machine, Machine::after(next), "round {round}");
            assert_eq!((restored.snapshot, restored.next), (expected, Slot(next)));
            let first = expected.map_or(0, |slot: Slot| slot.0 + 1);
            assert_eq!(restored.entries, next - first);
            commit(&setting, next..next + 7);
            next += 7;
            if round % 3 == 0 {
                create(&setting.log, next - 3).unwrap();
                expected = Some(Slot(next - 3));
            }
            if round % 4 == 1 {
                setting.log.snapshots().truncate_through(expected.unwrap()).unwrap();
            }
            setting = if round % 2 == 0 { setting.reopen(mode) } else { setting.kill(mode) };
        }
    }
}

/// Entries above a gap wait until the gap is closed, and then come once.
#[test]
fn entries_above_a_gap_are_not_handed_over() {
    let setting = log(Mode::Durable);
    commit(&setting, 0..3);
    commit(&setting, 5..8);
    let (machine, restored) = Machine::restore(&setting.log).unwrap();
    assert_eq!((machine, restored.next, restored.entries), (Machine::after(3), Slot(3), 3));
    commit(&setting, 3..5);
    let (machine, restored) = Machine::restore(&setting.log).unwrap();
    assert_eq!((machine, restored.next), (Machine::after(8), Slot(8)));
}

/// An older snapshot with the entries after it makes up for a damaged one; without these entries
/// the damage is the error.
#[test]
fn an_older_snapshot_is_used_only_with_the_entries_after_it() {
    let damaged = |truncated: u64| {
        let setting = log(Mode::Durable);
        commit(&setting, 0..20);
        create(&setting.log, 9).unwrap();
        create(&setting.log, 15).unwrap();
        setting.log.snapshots().truncate_through(Slot(truncated)).unwrap();
        setting.disk.flip_bit(&file(15), (BLOCK_BYTES as u64 + 50) * 8).unwrap();
        setting
    };
    let setting = damaged(9);
    let (machine, restored) = Machine::restore(&setting.log).unwrap();
    assert_eq!((machine, restored.snapshot), (Machine::after(20), Some(Slot(9))));
    assert!(matches!(
        restored.skipped[..],
        [SnapshotError::CorruptedSnapshot { slot: Slot(15), .. }]
    ));
    let setting = damaged(10);
    let error = Machine::restore(&setting.log).unwrap_err();
    assert!(matches!(error, SnapshotError::CorruptedSnapshot { slot: Slot(15), .. }), "{error:?}");
    setting.disk.remove(&file(15)).unwrap();
    let error = Machine::restore(&setting.log).unwrap_err();
    assert!(matches!(error, SnapshotError::Truncated { floor: Slot(10) }), "{error:?}");
    setting.disk.remove(&file(9)).unwrap();
    let error = Machine::restore(&setting.log).unwrap_err();
    assert!(matches!(error, SnapshotError::Truncated { floor: Slot(10) }), "{error:?}");
}

#[test]
fn the_first_error_of_a_callback_ends_it() {
    #[derive(Debug)]
    enum Ours {
        Ended(u64),
        Log(#[allow(dead_code)] SnapshotError),
    }
    impl From<SnapshotError> for Ours {
        fn from(error: SnapshotError) -> Self {
            Ours::Log(error)
        }
    }
    let setting = log(Mode::Durable);
    commit(&setting, 0..10);
    create(&setting.log, 3).unwrap();
    let ended =
        setting.log.snapshots().restore(|_| Err(Ours::Ended(1)), |_| panic!("it had ended"));
    assert!(matches!(ended, Err(Ours::Ended(1))));
    let mut seen = 0;
    let ended = setting.log.snapshots().restore(
        |snapshot| snapshot.read_to_end(&mut Vec::new()).map(drop).map_err(|_| Ours::Ended(0)),
        |entry| {
            seen += 1;
            if entry.slot() == Slot(6) { Err(Ours::Ended(6)) } else { Ok(()) }
        },
    );
    assert!(matches!(ended, Err(Ours::Ended(6))));
    assert_eq!(seen, 3);
}

/// Entries accepted above the snapshot, and not committed, are there after a restore.
#[test]
fn accepted_entries_survive_a_truncation_under_a_snapshot() {
    let setting = log(Mode::Durable);
    commit(&setting, 0..5);
    setting.accept(7, LOW, b"accepted");
    create(&setting.log, 4).unwrap();
    setting.log.snapshots().truncate_through(Slot(4)).unwrap();
    let setting = setting.kill(Mode::Durable);
    assert_eq!(Machine::restore(&setting.log).unwrap().0, Machine::after(5));
    assert_eq!(setting.uncommitted(), [(7, LOW, b"accepted".to_vec())]);
}
