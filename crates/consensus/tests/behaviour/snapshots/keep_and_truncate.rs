//! Dropping entries that a snapshot covers, and older snapshots.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_consensus::{Mode, ReadError, Slot, SnapshotError};
use esker_disk::BLOCK_BYTES;
use esker_log::InvalidOption;

use crate::fixture::{Setting, log, log_with};
use crate::snapshots::{Machine, commit, create, file, slots_of};

fn flip(setting: &Setting, at: u64) {
    setting.disk.flip_bit(&file(at), (BLOCK_BYTES as u64 + 40) * 8).unwrap();
}

#[test]
fn truncation_needs_a_snapshot_that_is_whole() {
    let setting = log(Mode::Durable);
    commit(&setting, 0..101);
    let nothing = setting.log.snapshots().truncate_through(Slot(50));
    assert!(matches!(nothing, Err(SnapshotError::NoSnapshot)), "{nothing:?}");
    create(&setting.log, 49).unwrap();
    let below = setting.log.snapshots().truncate_through(Slot(50));
    assert!(matches!(below, Err(SnapshotError::NoSnapshot)), "{below:?}");
    create(&setting.log, 50).unwrap();
    flip(&setting, 50);
    let corrupt = setting.log.snapshots().truncate_through(Slot(50));
    assert!(matches!(corrupt, Err(SnapshotError::CorruptedSnapshot { .. })), "{corrupt:?}");
    assert_eq!(setting.log.floor(), None);
    // An older one that is whole covers what it covers.
    assert_eq!(setting.log.snapshots().truncate_through(Slot(48)).unwrap(), Slot(49));
    create(&setting.log, 50).unwrap();
    assert_eq!(setting.log.snapshots().truncate_through(Slot(50)).unwrap(), Slot(50));
    let setting = setting.reopen(Mode::Durable);
    let guard = setting.log.pin();
    for slot in 0..=50 {
        let read = setting.log.read(Slot(slot), &guard);
        assert!(matches!(read, Err(ReadError::Truncated { floor: Slot(50) })), "{slot}");
    }
    for slot in 51..=100 {
        assert_eq!(setting.committed(slot), crate::fixture::value(slot));
    }
}

/// A damaged snapshot counts for nothing: the newest ones that are whole stay.
#[test]
fn keeping_counts_only_snapshots_that_are_whole() {
    let setting = log(Mode::Durable);
    commit(&setting, 0..10);
    for at in 1..=8 {
        create(&setting.log, at).unwrap();
    }
    let none = setting.log.snapshots().keep(0);
    assert!(
        matches!(none, Err(SnapshotError::InvalidOption(InvalidOption { option: "count", .. }))),
        "{none:?}"
    );
    assert!(setting.log.snapshots().keep(8).unwrap().is_empty());
    assert!(setting.log.snapshots().keep(usize::MAX).unwrap().is_empty());
    flip(&setting, 8);
    flip(&setting, 6);
    flip(&setting, 2);
    assert!(setting.log.snapshots().keep(6).unwrap().is_empty());
    assert_eq!(setting.log.snapshots().keep(2).unwrap(), [1, 2, 3, 4].map(Slot));
    assert_eq!(slots_of(&setting.log), [5, 6, 7, 8]);
    assert_eq!(setting.log.snapshots().keep(1).unwrap(), [5, 6].map(Slot));
    flip(&setting, 7);
    assert!(setting.log.snapshots().keep(1).unwrap().is_empty());
    let setting = setting.reopen(Mode::Durable);
    assert_eq!(slots_of(&setting.log), [7, 8]);
}

/// A snapshot that is being read stays readable when it is removed.
#[test]
fn an_open_snapshot_outlives_its_removal() {
    let setting = log(Mode::Durable);
    commit(&setting, 0..10);
    create(&setting.log, 3).unwrap();
    let mut open = setting.log.snapshots().latest().unwrap();
    create(&setting.log, 6).unwrap();
    assert_eq!(setting.log.snapshots().keep(1).unwrap(), [Slot(3)]);
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut open, &mut bytes).unwrap();
    assert_eq!(bytes, Machine::after(4).0);
}

#[test]
fn the_space_of_truncated_entries_is_returned() {
    let setting = log_with(Mode::Durable, |options| options.log.segment_size = 4 << 20);
    let value = [7; 1024];
    let ballot = crate::fixture::LOW;
    for slots in (0..50_000).collect::<Vec<_>>().chunks(500) {
        let tickets: Vec<_> = slots
            .iter()
            .map(|slot| setting.log.learn(Slot(*slot), ballot, &value).unwrap())
            .collect();
        tickets.into_iter().for_each(|ticket| ticket.blocking_wait().unwrap());
    }
    let before = setting.disk.used();
    setting.log.snapshots().create(Slot(25_000), &[1; 1000][..]).unwrap();
    setting.log.snapshots().truncate_through(Slot(25_000)).unwrap();
    setting.log.maintenance().reclaim().unwrap();
    let after = setting.disk.used();
    assert!(after < before - before / 5, "{after} of {before} bytes");
    let guard = setting.log.pin();
    assert_eq!(setting.log.read_committed(Slot(25_001), &guard).unwrap().value(), value);
    assert_eq!(setting.log.read_committed(Slot(49_999), &guard).unwrap().value(), value);
    assert!(setting.log.read_committed(Slot(25_000), &guard).is_err());
}
