//! Creating snapshots, and finding those that are whole.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;
use std::sync::Arc;

use esker_consensus::{
    CreateSnapshotError, Mode, OpenError, ReadOnlySnapshots, SNAPSHOT_NOTE_LIMIT, Slot,
    SnapshotBounds, SnapshotError, StorageError,
};
use esker_disk::sim::{Effect, Fault};
use esker_disk::{BLOCK_BYTES, Op};

use crate::fixture::{DIR, LOW, MODES, log};
use crate::snapshots::{Machine, commit, create, file, slots_of};

#[test]
fn the_latest_and_the_nearest_are_found() {
    let setting = log(Mode::Durable);
    assert!(matches!(setting.log.snapshots().latest(), Err(SnapshotError::NoSnapshot)));
    commit(&setting, 0..501);
    create(&setting.log, 50).unwrap();
    assert_eq!(setting.log.snapshots().latest().unwrap().slot(), Slot(50));
    for at in [100, 200, 300, 400, 500] {
        create(&setting.log, at).unwrap();
    }
    let snapshots = setting.log.snapshots();
    assert_eq!(snapshots.latest().unwrap().slot(), Slot(500));
    for (at, found) in [(250, 200), (200, 200), (199, 100), (u64::MAX, 500), (50, 50)] {
        assert_eq!(snapshots.at_or_before(Slot(at)).unwrap().slot(), Slot(found));
    }
    assert!(matches!(snapshots.at_or_before(Slot(49)), Err(SnapshotError::NoSnapshot)));
    let info = snapshots.info(Slot(100)).unwrap();
    assert_eq!((info.slot, info.entries, info.len), (Slot(100), 101, 101 * 24));
    assert!(matches!(snapshots.info(Slot(101)), Err(SnapshotError::NoSnapshot)));
    assert_eq!(setting.log.snapshots().keep(2).unwrap().len(), 4);
    assert_eq!(slots_of(&setting.log), [400, 500]);
}

/// A snapshot represents every slot up to its own.
#[test]
fn only_committed_slots_without_a_gap_get_a_snapshot() {
    for mode in MODES {
        let setting = log(mode);
        let refused = |at| create(&setting.log, at).unwrap_err();
        assert!(matches!(refused(0), CreateSnapshotError::SlotNotFound { .. }));
        commit(&setting, 0..3);
        setting.accept(3, LOW, b"accepted");
        commit(&setting, 4..6);
        assert!(matches!(refused(3), CreateSnapshotError::NotCommitted { slot: Slot(3) }));
        assert!(matches!(refused(5), CreateSnapshotError::Gap { slot: Slot(3) }));
        assert!(matches!(refused(6), CreateSnapshotError::SlotNotFound { .. }));
        setting.commit(3, LOW);
        create(&setting.log, 5).unwrap();
        setting.log.snapshots().truncate_through(Slot(4)).unwrap();
        create(&setting.log, 4).unwrap();
        assert!(matches!(refused(3), CreateSnapshotError::Truncated { floor: Slot(4) }));
        setting
            .log
            .snapshots()
            .install(SnapshotBounds { floor: Slot(9), frontier: Slot(9) })
            .unwrap()
            .blocking_wait()
            .unwrap();
        create(&setting.log, 9).unwrap();
        assert_eq!(slots_of(&setting.log), [4, 5, 9]);
    }
}

#[test]
fn the_note_is_read_without_the_state() {
    let setting = log(Mode::Durable);
    commit(&setting, 0..2);
    let mut writer = setting.log.snapshots().writer(Slot(1)).unwrap();
    writer.write_all(&vec![7; 3 << 20]).unwrap();
    let note = vec![9; SNAPSHOT_NOTE_LIMIT];
    let info = writer.finish(&note).unwrap();
    assert_eq!(setting.log.snapshots().info(Slot(1)).unwrap(), info);
    assert_eq!((info.note, info.len), (note.clone(), 3 << 20));
    let writer = setting.log.snapshots().writer(Slot(1)).unwrap();
    let long = writer.finish(&vec![9; SNAPSHOT_NOTE_LIMIT + 1]);
    assert!(
        matches!(long, Err(CreateSnapshotError::EntryTooLarge { size: 1025, limit: 1024 })),
        "{long:?}"
    );
    assert_eq!(setting.log.snapshots().latest().unwrap().info().note, note);
}

#[test]
fn a_corrupt_newest_snapshot_is_reported_and_passed_over() {
    let sample = log(Mode::Durable);
    commit(&sample, 0..10);
    for at in [3, 6, 9] {
        create(&sample.log, at).unwrap();
    }
    sample.log.close().unwrap();
    let len = sample.disk.contents(&file(9)).unwrap().len() as u64;
    for byte in [0, 30, 100, BLOCK_BYTES as u64 + 30, BLOCK_BYTES as u64 + 100, len - 1] {
        let disk = sample.disk.fork(byte);
        disk.flip_bit(&file(9), byte * 8).unwrap();
        let setting = crate::fixture::open_on(&disk, Mode::Durable, |_| {});
        let snapshots = setting.log.snapshots();
        let verified = snapshots.verify(Slot(9));
        assert!(
            matches!(verified, Err(SnapshotError::CorruptedSnapshot { slot: Slot(9), .. })),
            "byte {byte}: {verified:?}"
        );
        let latest = snapshots.latest().unwrap();
        assert_eq!(latest.slot(), Slot(6));
        let [SnapshotError::CorruptedSnapshot { slot: Slot(9), .. }] = latest.skipped() else {
            panic!("it says so: {:?}", latest.skipped())
        };
        // The one before cannot be read.
        disk.make_unreadable(&file(6), BLOCK_BYTES as u64).unwrap();
        let latest = snapshots.latest().unwrap();
        assert_eq!((latest.slot(), latest.skipped().len()), (Slot(3), 2));
        disk.truncate(&file(3), 100).unwrap();
        let newest = snapshots.latest();
        assert!(
            matches!(newest, Err(SnapshotError::CorruptedSnapshot { slot: Slot(9), .. })),
            "{newest:?}"
        );
    }
}

/// The state cannot be read, or the disk is full: nothing is left, and the log continues.
#[test]
fn a_snapshot_that_fails_changes_nothing() {
    let setting = log(Mode::Durable);
    commit(&setting, 0..4);
    create(&setting.log, 3).unwrap();
    struct Failing(u32);
    impl std::io::Read for Failing {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            self.0 += 1;
            if self.0 > 1000 { Err(std::io::Error::other("its source")) } else { Ok(out.len()) }
        }
    }
    let refused = setting.log.snapshots().create(Slot(3), Failing(0));
    assert!(matches!(refused, Err(CreateSnapshotError::Stream(_))), "{refused:?}");
    setting.disk.inject(Fault::on(Op::Write, Effect::NoSpace).path("snapshot-"));
    let refused = setting.log.snapshots().create(Slot(3), &[0; 5000][..]);
    assert!(
        matches!(
            refused,
            Err(CreateSnapshotError::Storage(StorageError::Log(esker_log::Error::NoSpace { .. })))
        ),
        "{refused:?}"
    );
    setting.disk.clear_faults();
    commit(&setting, 4..6);
    assert_eq!(Machine::restore(&setting.log).unwrap().0, Machine::after(6));
}

/// Beside the writer and without its lock.
#[test]
fn snapshots_are_read_without_the_lock() {
    let setting = log(Mode::Durable);
    commit(&setting, 0..4);
    create(&setting.log, 3).unwrap();
    let disk = Arc::new(setting.disk.clone());
    let snapshots = ReadOnlySnapshots::open_on(disk.clone(), DIR).unwrap();
    assert_eq!(snapshots.latest().unwrap().slot(), Slot(3));
    setting.log.close().unwrap();
    assert_eq!(snapshots.list().unwrap(), [Slot(3)]);
    assert!(matches!(setting.log.snapshots().list(), Err(StorageError::Closed)));
    assert!(matches!(
        create(&setting.log, 3),
        Err(CreateSnapshotError::Storage(StorageError::Closed))
    ));
    assert!(matches!(
        setting.log.snapshots().keep(1),
        Err(SnapshotError::Storage(StorageError::Closed))
    ));
    let missing = ReadOnlySnapshots::open_on(disk, "/other");
    assert!(matches!(
        missing,
        Err(OpenError::Storage(StorageError::Log(esker_log::Error::NotALog { .. })))
    ));
}
