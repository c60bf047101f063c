//! Failures of the underlying log are reported, and never taken for success.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::ControlFlow;
use std::path::Path;

use esker_consensus::{
    AcceptError, COMPONENT, CommitError, ConsensusLog, Error, IterateOptions, LearnError, Mode,
    OpenError, Options, PromiseError, ReadError, ReadOnlyReason, Slot, SnapshotBounds,
    StorageError, TruncateError,
};
use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_disk::{Disk, Op, OpenMode, read_full_at, write_all_at};
use esker_log::{OnCorruption, Policy, Seq};

use crate::fixture::{DIR, HIGH, LOW, MODES, driven, log, log_with, open_on, value};

#[test]
fn failed_write_fails_every_later_operation_but_reads() {
    for mode in MODES {
        let s = log(mode);
        s.accept(0, LOW, b"before");
        s.commit(0, LOW);
        s.accept(1, LOW, b"before");
        s.disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg"));
        let failed = s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait();
        assert!(matches!(failed, Err(StorageError::Log(esker_log::Error::Io(_)))), "{failed:?}");
        s.disk.clear_faults();
        let poisoned = |error: Error| {
            assert!(
                matches!(error, Error::Storage(StorageError::Log(esker_log::Error::Poisoned(_)))),
                "{error:?}"
            );
        };
        poisoned(s.log.accept(Slot(2), HIGH, b"after").unwrap_err().into());
        poisoned(s.log.commit(Slot(1), LOW).unwrap_err().into());
        poisoned(s.log.promise(HIGH, Slot(0)).unwrap_err().into());
        poisoned(s.log.learn(Slot(5), HIGH, b"after").unwrap_err().into());
        poisoned(s.log.maintenance().checkpoint().unwrap_err().into());
        assert_eq!(s.committed(0), b"before");
        assert!(s.log.close().is_err());
        let disk = s.disk.clone();
        drop(s);
        let s = open_on(&disk, mode, |_| {});
        assert_eq!(s.committed(0), b"before");
        s.accept(2, HIGH, b"after");
    }
}

#[test]
fn a_commit_shows_only_when_its_marker_is_durable() {
    for mode in MODES {
        let s = log(mode);
        s.accept(0, LOW, b"value");
        let ticket = s.log.commit(Slot(0), LOW).unwrap();
        let guard = s.log.pin();
        assert!(matches!(
            s.log.read_committed(Slot(0), &guard),
            Err(ReadError::NotCommitted { slot: Slot(0) })
        ));
        assert!(!s.log.read(Slot(0), &guard).unwrap().is_committed());
        assert_eq!((s.log.frontier(), s.log.stats().committed), (None, None));
        ticket.blocking_wait().unwrap();
        assert!(s.log.read_committed(Slot(0), &guard).unwrap().is_committed());
        assert_eq!(s.log.frontier(), Some(Slot(0)));
    }
}

#[test]
fn every_call_after_close_returns_closed() {
    for mode in MODES {
        let s = log(mode);
        s.accept(0, LOW, b"value");
        s.log.close().unwrap();
        let guard = s.log.pin();
        assert!(matches!(s.log.close(), Err(StorageError::Closed)));
        assert!(matches!(
            s.log.accept(Slot(1), LOW, b""),
            Err(AcceptError::Storage(StorageError::Closed))
        ));
        assert!(matches!(
            s.log.commit(Slot(0), LOW),
            Err(CommitError::Storage(StorageError::Closed))
        ));
        assert!(matches!(
            s.log.promise(HIGH, Slot(0)),
            Err(PromiseError::Storage(StorageError::Closed))
        ));
        assert!(matches!(
            s.log.read(Slot(0), &guard),
            Err(ReadError::Storage(StorageError::Closed))
        ));
        assert!(matches!(s.log.maintenance().scan_uncommitted(&guard), Err(StorageError::Closed)));
        assert!(matches!(s.log.maintenance().checkpoint(), Err(StorageError::Closed)));
        assert!(matches!(
            s.log.truncate_before(Slot(0)),
            Err(TruncateError::Storage(StorageError::Closed))
        ));
        let all = s.log.iterate(.., IterateOptions::default(), |_| unreachable!());
        assert!(matches!(all, Err(ReadError::Storage(StorageError::Closed))));
    }
}

#[test]
fn a_second_opening_is_refused() {
    let s = log(Mode::Durable);
    let (options, _engine) = driven(&s.disk, Mode::Durable);
    let refused = ConsensusLog::builder(DIR).options(options).open();
    assert!(matches!(
        refused,
        Err(OpenError::Storage(StorageError::Log(esker_log::Error::Locked { .. })))
    ));
}

/// Flips a bit of the value in this record, on the disk.
fn damage(disk: &SimDisk, value: &[u8]) {
    let process = disk.process();
    let dir = process.open_dir(Path::new(DIR)).unwrap();
    let names = dir.list().unwrap();
    for name in names.iter().filter(|name| name.ends_with(".seg")) {
        let path = Path::new(DIR).join(name);
        let bytes = disk.contents(&path).unwrap();
        if let Some(at) = bytes.windows(value.len()).position(|window| window == value) {
            let file = dir.open(name, OpenMode::write()).unwrap();
            let mut byte = [bytes[at] ^ 1];
            write_all_at(&*file, &byte, at as u64).unwrap();
            file.sync_data().unwrap();
            read_full_at(&*dir.open(name, OpenMode::read()).unwrap(), &mut byte, at as u64)
                .unwrap();
            assert_eq!(byte[0], bytes[at] ^ 1);
            return;
        }
    }
    panic!("the value is in no segment");
}

/// A log whose slot 3 is corrupted, closed.
fn damaged() -> SimDisk {
    let s = log_with(Mode::Durable, |_| {});
    for slot in 0..8 {
        let value = if slot == 3 { b"the damaged one".to_vec() } else { value(slot) };
        s.accept(slot, LOW, &value);
        s.commit(slot, LOW);
    }
    for slot in 8..60 {
        s.accept(slot, LOW, &[slot as u8; 3000]);
        s.commit(slot, LOW);
    }
    s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
    s.log.close().unwrap();
    let disk = s.disk.clone();
    drop(s);
    damage(&disk, b"the damaged one");
    disk
}

#[test]
fn corruption_is_reported_with_slot_and_offset_and_other_slots_are_read() {
    let disk = damaged();
    let s = open_on(&disk, Mode::Durable, |_| {});
    let guard = s.log.pin();
    let error = s.log.read_committed(Slot(3), &guard).unwrap_err();
    let ReadError::Storage(StorageError::CorruptedEntry {
        slot: Slot(3),
        cause: esker_log::Error::Corrupted(damage),
    }) = &error
    else {
        panic!("{error:?}")
    };
    assert!(damage.offset > 0 && error.to_string().contains("slot 3"));
    assert_eq!(s.committed(7), value(7));
    let all = s.log.iterate(.., IterateOptions::default(), |_| std::ops::ControlFlow::Continue(()));
    assert!(matches!(
        all,
        Err(ReadError::Storage(StorageError::CorruptedEntry { slot: Slot(3), .. }))
    ));
    let mut options = IterateOptions::default();
    options.skip_errors = true;
    let all = s.log.iterate(.., options, |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!((all.visited, all.unreadable, all.skipped[0].0), (59, 1, Slot(3)));
}

/// Guards against an iteration that promises to pass over what is corrupted, and ends at the
/// 1025th.
#[test]
fn thousands_of_corrupted_entries_are_skipped_and_counted() {
    let s = log_with(Mode::Durable, |_| {});
    // They are in a few commit units, and each is corrupted as a whole.
    let mut values = vec![b"v".to_vec(); 1500];
    values[3] = b"the damaged one".to_vec();
    values[1400] = b"the other".to_vec();
    let pairs: Vec<_> = (0..).map(Slot).zip(values.iter().map(Vec::as_slice)).collect();
    s.log.accept_batch(LOW, &pairs).unwrap().blocking_wait().unwrap();
    s.log.commit_through(Slot(1499)).unwrap().blocking_wait().unwrap();
    for slot in 1500..1502 {
        s.log.learn(Slot(slot), LOW, &[0; 50_000]).unwrap().blocking_wait().unwrap();
    }
    s.log.close().unwrap();
    let disk = s.disk.clone();
    drop(s);
    damage(&disk, b"the damaged one");
    damage(&disk, b"the other");
    let s = open_on(&disk, Mode::Durable, |_| {});
    let mut options = IterateOptions::default();
    options.skip_errors = true;
    let all = s.log.iterate(.., options, |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert!(all.unreadable > 1024, "{}", all.unreadable);
    assert_eq!((all.visited + all.unreadable, all.skipped.len()), (1502, 1024));
}

/// Guards against an acceptor that continues with a hole in what it promised.
#[test]
fn log_with_a_quarantined_gap_stays_read_only() {
    let disk = damaged();
    let mut options = esker_log::Options::on(std::sync::Arc::new(disk.process()));
    options.segment_size = 64 << 10;
    options.on_corruption = OnCorruption::Quarantine;
    let repaired = esker_log::repair(DIR, &options).unwrap();
    assert_eq!(repaired.quarantined.len(), 1);
    for _ in 0..2 {
        let s = open_on(&disk, Mode::Durable, |_| {});
        assert_eq!(s.log.stats().read_only, Some(ReadOnlyReason::Repaired));
        assert!(matches!(
            s.log.accept(Slot(70), HIGH, b"x"),
            Err(AcceptError::Storage(StorageError::ReadOnly { .. }))
        ));
        assert!(matches!(
            s.log.promise(HIGH, Slot(0)),
            Err(PromiseError::Storage(StorageError::ReadOnly { .. }))
        ));
        assert!(matches!(
            s.log.commit(Slot(7), LOW),
            Err(CommitError::Storage(StorageError::ReadOnly { .. }))
        ));
        assert!(matches!(
            s.log.learn(Slot(70), LOW, b"x"),
            Err(LearnError::Storage(StorageError::ReadOnly { .. }))
        ));
        assert!(matches!(
            s.log.truncate_before(Slot(1)),
            Err(TruncateError::Storage(StorageError::ReadOnly { .. }))
        ));
        assert!(matches!(
            s.log.snapshots().install(SnapshotBounds { floor: Slot(1), frontier: Slot(1) }),
            Err(TruncateError::Storage(StorageError::ReadOnly { .. }))
        ));
        assert_eq!(s.committed(7), value(7));
        // Nothing is passed over silently: it may be among what was quarantined.
        let guard = s.log.pin();
        let lost = |slot: u64| {
            let read = s.log.read_committed(Slot(slot), &guard);
            matches!(
                read,
                Err(ReadError::Storage(StorageError::CorruptedEntry {
                    cause: esker_log::Error::Quarantined(_),
                    ..
                }))
            )
        };
        let missing = (0..60).filter(|slot| lost(*slot)).count() as u64;
        assert!(missing > 0 && lost(3));
        let each = |_: &esker_consensus::Entry<'_>| ControlFlow::Continue(());
        let reported = s.log.iterate(Slot(0).., IterateOptions::default(), each);
        assert!(
            matches!(reported, Err(ReadError::Storage(StorageError::CorruptedEntry { .. }))),
            "{reported:?}"
        );
        let mut options = IterateOptions::default();
        options.skip_errors = true;
        let gone = s.log.iterate(.., options, each).unwrap();
        assert_eq!((gone.visited, gone.unreadable), (60 - missing, missing));
        s.log.close().unwrap();
    }
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let refused = |change: fn(&mut Options)| {
        let (mut options, engine) = driven(&SimDisk::new(1), Mode::Durable);
        change(&mut options);
        let error = ConsensusLog::builder(DIR).options(options).open().unwrap_err();
        engine.stop();
        match error {
            OpenError::InvalidOption(refused) => refused.option,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(|options| options.mutable_size = 4095), "mutable_size");
    assert_eq!(refused(|options| options.checkpoint_every = 10), "checkpoint_every");
    let truncate = |options: &mut Options| options.log.on_corruption = OnCorruption::Truncate;
    assert_eq!(refused(truncate), "on_corruption");
    assert_eq!(refused(|options| options.log.component = Some(COMPONENT)), "component");
    assert_eq!(refused(|options| options.log.record_limit = 4096), "record_limit");
    assert_eq!(refused(|options| options.log.policy = Policy::OsBuffered), "policy");
    assert_eq!(refused(|options| options.log.retention.segments = Some(4)), "retention");
}

#[test]
fn offsets_resolve_to_entries_only() {
    let s = log(Mode::Durable);
    s.log.promise(LOW, Slot(0)).unwrap().blocking_wait().unwrap();
    s.accept(4, LOW, b"value");
    s.commit(4, LOW);
    let offset = s.log.maintenance().offset_of(Slot(4)).unwrap().unwrap();
    let entry = s.log.maintenance().read_at(offset).unwrap();
    assert_eq!((entry.slot().0, entry.value()), (4, &b"value"[..]));
    for nowhere in [0, 1, 3, 99, u64::MAX].map(Seq) {
        let error = s.log.maintenance().read_at(nowhere).unwrap_err();
        assert!(matches!(error, ReadError::InvalidOffset { offset } if offset == nowhere));
    }
    assert!(matches!(
        s.log.maintenance().offset_of(Slot(5)),
        Err(ReadError::SlotNotFound { slot: Slot(5) })
    ));
}

/// Everything is durable at close and at a checkpoint, whatever was asked of commits.
#[test]
fn close_and_checkpoint_sync_also_without_sync_on_commit() {
    for mode in MODES {
        for close in [true, false] {
            let s = log_with(mode, |options| options.sync_on_commit = false);
            s.log.accept(Slot(0), LOW, b"value").unwrap().blocking_wait().unwrap();
            s.log.commit(Slot(0), LOW).unwrap().blocking_wait().unwrap();
            assert_eq!(s.committed(0), b"value", "shown at once");
            if close {
                s.log.close().unwrap();
            } else {
                s.log.maintenance().checkpoint().unwrap();
            }
            s.disk.power_cut(esker_disk::sim::Persist::Nothing);
            let disk = s.disk.clone();
            drop(s);
            disk.power_on();
            assert_eq!(open_on(&disk, mode, |_| {}).committed(0), b"value");
        }
    }
}
