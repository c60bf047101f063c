//! Dropping slots at both ends, and what of it outlives a crash.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use esker_consensus::{
    AcceptError, CommitError, Mode, ReadError, Slot, SnapshotBounds, StorageError, TruncateError,
};
use esker_disk::sim::{Effect, Fault};
use esker_disk::{Disk, Op};

use crate::fixture::{self, DIR, HIGH, HIGHER, LOW, MODES, Setting, log, log_with, open_on, value};

fn fill(s: &Setting, slots: impl IntoIterator<Item = u64>) {
    for slot in slots {
        s.accept(slot, LOW, &value(slot));
        s.commit(slot, LOW);
    }
}

#[test]
fn slots_below_the_floor_return_truncated() {
    for mode in MODES {
        let s = log(mode);
        fill(&s, 0..=100);
        s.log.truncate_before(Slot(51)).unwrap().blocking_wait().unwrap();
        let s = s.kill(mode);
        assert_eq!((s.log.floor(), s.log.frontier()), (Some(Slot(50)), Some(Slot(100))));
        assert_eq!(s.committed_slots(), (51..=100).collect::<Vec<_>>());
        let guard = s.log.pin();
        assert!(matches!(
            s.log.read(Slot(50), &guard),
            Err(ReadError::Truncated { floor: Slot(50) })
        ));
        assert!(matches!(
            s.log.accept(Slot(50), HIGH, b"back"),
            Err(AcceptError::Truncated { floor: Slot(50) })
        ));
        assert!(matches!(
            s.log.commit(Slot(0), LOW),
            Err(CommitError::Truncated { floor: Slot(50) })
        ));
    }
}

/// A frontier that commits had reached was acknowledged before those were durable.
#[test]
fn an_installed_frontier_is_durable_where_commits_are_not_synced() {
    for mode in MODES {
        let s = log_with(mode, |options| options.sync_on_commit = false);
        fill(&s, [0]);
        s.log
            .snapshots()
            .install(SnapshotBounds { floor: Slot(0), frontier: Slot(0) })
            .unwrap()
            .blocking_wait()
            .unwrap();
        for slot in [1, 2] {
            s.accept(slot, LOW, &value(slot));
        }
        s.log.commit_through(Slot(2)).unwrap().detach();
        s.log
            .snapshots()
            .install(SnapshotBounds { floor: Slot(0), frontier: Slot(2) })
            .unwrap()
            .blocking_wait()
            .unwrap();
        let s = s.cut_power(mode);
        assert_eq!((s.log.frontier(), s.committed_slots()), (Some(Slot(2)), vec![1, 2]));
    }
}

/// A call that changes nothing acknowledges the record that made it so, and no call before it.
#[test]
fn a_truncation_that_drops_nothing_makes_no_accept_durable() {
    let s = log(Mode::Durable);
    fill(&s, 0..=2);
    s.log.truncate_before(Slot(2)).unwrap().blocking_wait().unwrap();
    let accept = s.log.accept(Slot(21), LOW, b"vote").unwrap();
    s.log.truncate_before(Slot(1)).unwrap().blocking_wait().unwrap();
    s.log.truncate_from(Slot(40)).unwrap().blocking_wait().unwrap();
    s.commit(2, LOW);
    assert!(!accept.is_ready());
    let s = s.cut_power(Mode::Durable);
    assert_eq!((s.uncommitted(), s.log.floor()), (vec![], Some(Slot(1))));
}

#[test]
fn nothing_uncommitted_is_truncated() {
    let s = log(Mode::Durable);
    fill(&s, [0, 1, 3]);
    assert!(matches!(s.log.truncate_before(Slot(3)), Err(TruncateError::Gap { slot: Slot(2) })));
    s.log.truncate_before(Slot(2)).unwrap().blocking_wait().unwrap();
    assert_eq!(s.committed_slots(), [3]);
    // Far from enough for a segment to go, and durable all the same.
    let s = s.kill(Mode::Durable);
    assert_eq!((s.log.floor(), s.committed_slots()), (Some(Slot(1)), vec![3]));
}

/// Guards against a truncation that keeps the space, that drops the promise with the segment it
/// was in, or that loses live entries among the dropped: an old uncommitted slot, a late one.
#[test]
fn segments_are_dropped_and_their_live_values_are_kept() {
    for mode in MODES {
        let s = log(mode);
        s.log.promise(HIGHER, Slot(0)).unwrap().blocking_wait().unwrap();
        s.log.learn(Slot(9999), HIGHER, b"far ahead").unwrap().blocking_wait().unwrap();
        s.accept(8888, HIGHER, b"old and uncommitted");
        for slot in 0..300 {
            s.accept(slot, HIGHER, &vec![slot as u8; 2000]);
            s.commit(slot, HIGHER);
        }
        let before = s.log.stats().log;
        s.log.truncate_before(Slot(290)).unwrap().blocking_wait().unwrap();
        let after = s.log.stats().log;
        assert!(after.after.0 > before.after.0 && after.disk_bytes * 2 < before.disk_bytes);
        // Twice in a row: what was copied is copied again.
        for slot in 300..600 {
            s.accept(slot, HIGHER, &vec![slot as u8; 2000]);
            s.commit(slot, HIGHER);
        }
        s.log.truncate_before(Slot(590)).unwrap().blocking_wait().unwrap();
        assert!(s.log.stats().log.after > after.after);
        let s = s.kill(mode);
        assert_eq!(s.log.promised(), Some(HIGHER));
        assert_eq!(s.committed_slots(), (590..600).chain([9999]).collect::<Vec<_>>());
        assert_eq!(s.committed(9999), b"far ahead");
        if mode == Mode::Durable {
            let open = [(8888, HIGHER, b"old and uncommitted".to_vec())];
            assert_eq!(s.uncommitted(), open);
            s.commit(8888, HIGHER);
            assert_eq!(s.committed(8888), b"old and uncommitted");
        }
    }
}

/// Guards against a note that opening depends on: everything it says is in the records.
#[test]
fn truncated_log_opens_without_app_metadata() {
    for mode in MODES {
        let s = log(mode);
        s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
        s.log.learn(Slot(9999), LOW, b"far ahead").unwrap().blocking_wait().unwrap();
        for slot in 0..200 {
            s.accept(slot, HIGH, &vec![slot as u8; 2000]);
            s.commit(slot, HIGH);
        }
        s.log.truncate_before(Slot(150)).unwrap().blocking_wait().unwrap();
        s.log.close().unwrap();
        let disk = s.disk.clone();
        drop(s);
        let dir = disk.process().open_dir(std::path::Path::new(fixture::DIR)).unwrap();
        dir.unlink("note").unwrap();
        let s = fixture::open_on(&disk, mode, |_| {});
        assert_eq!((s.log.promised(), s.log.floor()), (Some(HIGH), Some(Slot(149))));
        assert_eq!(s.committed_slots(), (150..200).chain([9999]).collect::<Vec<_>>());
        assert_eq!(s.log.frontier(), Some(Slot(199)));
    }
}

#[test]
fn suffix_truncation_never_drops_committed_slots() {
    for mode in MODES {
        let s = log(mode);
        fill(&s, 0..5);
        for slot in 5..10 {
            s.accept(slot, LOW, b"old term");
        }
        assert!(matches!(
            s.log.truncate_from(Slot(3).next()),
            Err(TruncateError::BelowFrontier { committed: Slot(4) })
        ));
        s.log.truncate_from(Slot(6).next()).unwrap().blocking_wait().unwrap();
        s.accept(7, HIGH, b"new term");
        let open: Vec<_> = s.uncommitted().into_iter().map(|(slot, ..)| slot).collect();
        assert_eq!(open, [5, 6, 7]);
        let s = if mode == Mode::Durable { s.kill(mode) } else { s };
        let s = s.reopen(mode).kill(mode);
        let open: Vec<_> = s.uncommitted().into_iter().map(|(slot, ..)| slot).collect();
        assert_eq!(open, [5, 6, 7], "what was dropped stays dropped");
        s.log.commit_through(Slot(7)).unwrap().blocking_wait().unwrap();
        assert_eq!(s.committed(7), b"new term");
        assert!(matches!(
            s.log.truncate_from(Slot(6).next()),
            Err(TruncateError::BelowFrontier { committed: Slot(7) })
        ));
    }
}

#[test]
fn install_moves_floor_and_frontier_over_a_gap_and_never_back() {
    for mode in MODES {
        let s = log(mode);
        fill(&s, [0, 1, 50, 60, 121]);
        s.accept(55, LOW, b"may or may not be chosen");
        s.log
            .snapshots()
            .install(SnapshotBounds { floor: Slot(55), frontier: Slot(120) })
            .unwrap()
            .blocking_wait()
            .unwrap();
        assert_eq!(s.log.frontier(), Some(Slot(121)), "what was committed after the gap joins");
        let s = s.kill(mode);
        assert_eq!((s.log.floor(), s.log.frontier()), (Some(Slot(55)), Some(Slot(121))));
        assert_eq!(s.committed_slots(), [60, 121]);
        assert!(s.uncommitted().is_empty());
        assert!(matches!(
            s.log.snapshots().install(SnapshotBounds { floor: Slot(70), frontier: Slot(60) }),
            Err(TruncateError::Gap { .. })
        ));
        s.log
            .snapshots()
            .install(SnapshotBounds { floor: Slot(10), frontier: Slot(20) })
            .unwrap()
            .blocking_wait()
            .unwrap();
        assert_eq!((s.log.floor(), s.log.frontier()), (Some(Slot(55)), Some(Slot(121))));
        s.log.learn(Slot(56), LOW, b"caught up").unwrap().blocking_wait().unwrap();
        assert_eq!(s.committed_slots(), [56, 60, 121]);
    }
}

/// Slots are dense above the floor, wherever that is. Guards against a replay that counts them from
/// slot 0 because it does not know the floor.
#[test]
fn slots_above_2_to_the_32_open_without_app_metadata() {
    const FLOOR: u64 = 5 << 32;
    for mode in MODES {
        let s = log(mode);
        s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
        s.log
            .snapshots()
            .install(SnapshotBounds { floor: Slot(FLOOR), frontier: Slot(FLOOR) })
            .unwrap()
            .blocking_wait()
            .unwrap();
        s.log.learn(Slot(FLOOR + 9999), LOW, b"far ahead").unwrap().blocking_wait().unwrap();
        for slot in FLOOR + 1..=FLOOR + 200 {
            s.accept(slot, HIGH, &vec![slot as u8; 2000]);
            s.commit(slot, HIGH);
        }
        s.log.truncate_before(Slot(FLOOR + 150)).unwrap().blocking_wait().unwrap();
        assert!(s.log.stats().log.after.0 > 0, "the record of the first floor is gone");
        s.log.close().unwrap();
        let disk = s.disk.clone();
        drop(s);
        disk.process().open_dir(Path::new(DIR)).unwrap().unlink("note").unwrap();
        let s = open_on(&disk, mode, |_| {});
        assert_eq!((s.log.promised(), s.log.floor()), (Some(HIGH), Some(Slot(FLOOR + 149))));
        let left = (FLOOR + 150..=FLOOR + 200).chain([FLOOR + 9999]).collect::<Vec<_>>();
        assert_eq!(s.committed_slots(), left);
        assert_eq!(s.log.frontier(), Some(Slot(FLOOR + 200)));
    }
}

/// Three pages of committed slots that only the log has, in a segment that is sealed.
fn three_pages() -> Setting {
    let s = log(Mode::Durable);
    for first in (0..3 * 4096).step_by(512) {
        let values: Vec<_> = (first..first + 512).map(|slot| (Slot(slot), &b"value"[..])).collect();
        s.log.accept_batch(LOW, &values).unwrap().blocking_wait().unwrap();
    }
    s.log.commit_through(Slot(3 * 4096 - 1)).unwrap().blocking_wait().unwrap();
    s.log.maintenance().checkpoint().unwrap();
    for _ in 0..2 {
        // It takes the room of a segment.
        s.log.learn(Slot(99_999), LOW, &vec![7; 60_000]).unwrap().blocking_wait().unwrap();
        s.log.learn(Slot(99_998), LOW, &vec![7; 60_000]).unwrap().blocking_wait().unwrap();
    }
    let s = s.reopen(Mode::Durable);
    assert!(s.log.stats().pages < 3, "pages are read when they are needed");
    s
}

/// The first byte of the record of a page whose slots were accepted one after another.
fn page_at(s: &Setting, number: u64) -> (std::path::PathBuf, u64) {
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    for name in s.disk.files(Path::new(DIR)).unwrap() {
        let path = Path::new(DIR).join(&name);
        let bytes = s.disk.contents(&path).unwrap();
        let found = (0..bytes.len().saturating_sub(4096 * 8)).find(|at| {
            let words: Vec<_> = (0..4).map(|n| word(&bytes, at + 11 + n * 8)).collect();
            let step = words[1].wrapping_sub(words[0]);
            [8, 10, 11].contains(&bytes[*at])
                && word(&bytes, at + 1) == number
                && bytes[at + 9..at + 11] == [0, 0]
                && (1..1 << 20).contains(&step)
                && words.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == step)
        });
        if let (true, Some(at)) = (name.ends_with(".seg"), found) {
            return (path, at as u64);
        }
    }
    panic!("no record of page {number}");
}

/// Guards against a floor that reads what it drops: it takes as long as that is, with every accept
/// waiting, and fails after the floor was raised.
#[test]
fn pages_below_the_floor_are_not_read() {
    for install in [false, true] {
        let s = three_pages();
        for number in [0, 1] {
            let (path, at) = page_at(&s, number);
            s.disk.flip_bit(&path, (at + 100) * 8).unwrap();
        }
        s.disk.inject(Fault::on(Op::Read, Effect::Io).path(".seg"));
        let floor = 2 * 4096 - 1;
        if install {
            s.log
                .snapshots()
                .install(SnapshotBounds { floor: Slot(floor), frontier: Slot(floor) })
                .unwrap()
                .blocking_wait()
                .unwrap();
        } else {
            s.log.truncate_before(Slot(floor + 1)).unwrap().blocking_wait().unwrap();
        }
        assert_eq!((s.log.floor(), s.log.stats().read_only), (Some(Slot(floor)), None));
        let range = s.log.stats().committed.unwrap();
        assert_eq!(
            (range.lowest, range.highest, range.count),
            (Slot(floor + 1), Slot(99_999), 4096 + 2)
        );
        s.disk.clear_faults();
        let s = s.kill(Mode::Durable);
        assert_eq!(s.log.stats().committed.unwrap(), range);
        assert_eq!(s.log.floor(), Some(Slot(floor)));
        s.accept(3 * 4096, LOW, b"next");
        s.commit(3 * 4096, LOW);
        assert_eq!(s.committed_slots()[..2], [floor + 1, floor + 2]);
    }
}

/// The page that contains the floor cannot be read: the floor rises all the same, and the log
/// opens.
#[test]
fn corrupted_page_does_not_stop_truncation() {
    let s = three_pages();
    let (path, at) = page_at(&s, 1);
    s.disk.flip_bit(&path, (at + 100) * 8).unwrap();
    s.log.truncate_before(Slot(4096 + 1000)).unwrap().blocking_wait().unwrap();
    assert_eq!(s.log.floor(), Some(Slot(4096 + 999)));
    assert_eq!(s.log.stats().committed.unwrap().count, 2 * 4096 - 1000 + 2);
    let s = s.kill(Mode::Durable);
    assert_eq!(s.log.floor(), Some(Slot(4096 + 999)));
    assert_eq!(s.log.stats().committed.unwrap().count, 2 * 4096 - 1000 + 2);
    let guard = s.log.pin();
    assert!(matches!(
        s.log.read(Slot(4096 + 1000), &guard),
        Err(ReadError::Storage(StorageError::CorruptedEntry { .. }))
    ));
    assert_eq!(s.committed(2 * 4096), b"value");
}
