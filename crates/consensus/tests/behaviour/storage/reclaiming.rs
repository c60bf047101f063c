//! Space below the floor: what is dropped, what that copies, and what a crash leaves of it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use esker_consensus::{ConsensusLog, Mode, Options, ReadError, Slot, StorageError};
use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::Engine;

use crate::fixture::{
    DIR, HIGH, HIGHER, LOW, MODES, Setting, driven, log, log_with, open_on, value,
};

fn fill(log: &ConsensusLog, slots: std::ops::Range<u64>, len: usize) {
    let values: Vec<_> = slots.clone().map(|slot| vec![slot as u8; len]).collect();
    let pairs: Vec<_> = slots.clone().map(Slot).zip(values.iter().map(Vec::as_slice)).collect();
    for pairs in pairs.chunks(100) {
        log.accept_batch(LOW, pairs).unwrap().blocking_wait().unwrap();
    }
    log.commit_through(Slot(slots.end - 1)).unwrap().blocking_wait().unwrap();
}

/// As Raft truncates: everything but the newest entries, again and again. Guards against copies of
/// what the next truncation drops.
#[test]
fn a_log_that_is_truncated_in_order_copies_next_to_nothing() {
    const ROUNDS: u64 = 60;
    const EACH: u64 = 500;
    let s = log(Mode::Durable);
    fill(&s.log, 0..EACH, 100);
    let mut own = s.log.stats().log_stats.accepted.0;
    for round in 1..ROUNDS {
        let before = s.log.stats().log_stats.accepted.0;
        fill(&s.log, round * EACH..(round + 1) * EACH, 100);
        own += s.log.stats().log_stats.accepted.0 - before + 1;
        s.log.truncate_before(Slot(round * EACH)).unwrap().blocking_wait().unwrap();
    }
    // Pages and roots are large: what matters is bytes, and of these the most are copies.
    let stats = s.log.stats();
    let entries = ROUNDS * EACH * 144;
    assert!(stats.reclaimed.bytes_copied * 5 <= entries, "{:?}", stats.reclaimed);
    assert!((stats.log_stats.accepted.0 - own) * 5 <= own, "{own} records, then {stats:?}");
    assert!(stats.reclaimed.bytes_freed >= entries / 2);
    // 500 to 1,000 entries are live: twice that, two segments, and what a checkpoint takes.
    let bound = 2 * 2 * EACH * 144 + 2 * (64 << 10) + (32 << 10);
    assert!(stats.log.disk_bytes <= bound, "{} of {bound}", stats.log.disk_bytes);
    let s = s.kill(Mode::Durable);
    assert_eq!(s.committed_slots(), ((ROUNDS - 1) * EACH..ROUNDS * EACH).collect::<Vec<_>>());
}

/// Reclaims a third of 3,000 values: no more than a segment's values are copied.
#[test]
fn live_values_are_not_copied_to_free_segments_that_truncation_drops() {
    let s = log(Mode::Durable);
    fill(&s.log, 0..3000, 1000);
    let before = s.log.stats().log.disk_bytes;
    s.log.truncate_before(Slot(1000)).unwrap().blocking_wait().unwrap();
    s.log.maintenance().reclaim().unwrap();
    let stats = s.log.stats();
    assert!(stats.reclaimed.records_copied <= 63, "{:?}", stats.reclaimed);
    assert!(stats.reclaimed.bytes_freed >= 1_000_000 - 2 * (64 << 10));
    assert!(stats.log.disk_bytes < before - 900_000);
    let s = s.kill(Mode::Durable);
    assert_eq!(s.committed_slots(), (1000..3000).collect::<Vec<_>>());
}

/// Truncation returns when the floor is durable; what it has to say about space, it says to
/// the log. Guards against a floor that fails for want of a readable value far below the tail.
#[test]
fn a_value_that_cannot_be_read_keeps_its_segment_and_nothing_else() {
    let s = log(Mode::Durable);
    fill(&s.log, 0..50, 2000);
    s.log.learn(Slot(9999), LOW, &[0xAB; 3000]).unwrap().blocking_wait().unwrap();
    fill(&s.log, 50..400, 2000);
    let s = s.reopen(Mode::Durable);
    let path = s.disk.files(Path::new(DIR)).unwrap().into_iter().find_map(|name| {
        let path = Path::new(DIR).join(name);
        let bytes = s.disk.contents(&path).unwrap();
        let at = bytes.windows(64).position(|bytes| bytes == [0xAB; 64])?;
        Some((path, at as u64 + 100))
    });
    let (path, at) = path.unwrap();
    s.disk.flip_bit(&path, at * 8).unwrap();
    s.log.truncate_before(Slot(390)).unwrap().blocking_wait().unwrap();
    assert_eq!(s.log.floor(), Some(Slot(389)));
    let failed = s.log.maintenance().reclaim().unwrap_err();
    assert!(matches!(failed, StorageError::Log(esker_log::Error::Corrupted(_))), "{failed:?}");
    assert!(s.log.stats().log.after.0 > 0, "the dead ones before it are gone");
    fill(&s.log, 400..410, 2000);
    let guard = s.log.pin();
    assert!((390..410).all(|slot| s.log.read_committed(Slot(slot), &guard).is_ok()));
    assert!(matches!(
        s.log.read(Slot(9999), &guard),
        Err(ReadError::Storage(StorageError::CorruptedEntry { .. }))
    ));
    s.log.truncate_before(Slot(400)).unwrap().blocking_wait().unwrap();
    s.log.close().unwrap();
}

/// Its page has no value that would be copied, and its record is among the dropped ones. Guards
/// against an index that continues naming it.
#[test]
fn page_without_slots_survives_its_segment() {
    let s = log(Mode::Durable);
    s.accept(50_000, LOW, b"of an old term");
    s.log.truncate_from(Slot(40_000).next()).unwrap().blocking_wait().unwrap();
    s.log.maintenance().checkpoint().unwrap();
    let s = s.reopen(Mode::Durable);
    for slot in 0..200 {
        s.accept(slot, LOW, &[slot as u8; 2000]);
        s.commit(slot, LOW);
    }
    s.log.truncate_before(Slot(195)).unwrap().blocking_wait().unwrap();
    assert!(s.log.maintenance().reclaim().is_ok() && s.log.stats().log.after.0 > 5);
    let s = s.reopen(Mode::Durable);
    let guard = s.log.pin();
    let read = s.log.read(Slot(50_000), &guard);
    assert!(matches!(read, Err(ReadError::SlotNotFound { .. })), "{read:?}");
    s.accept(50_000, HIGH, b"of a new term");
}

/// No truncation follows the pass, so only its checkpoint has them. Guards against a segment that
/// is dropped before the checkpoint.
#[test]
fn promise_and_floor_survive_the_segments_of_their_records() {
    let s = log(Mode::Durable);
    fill(&s.log, 0..10, 100);
    s.log.truncate_before(Slot(5)).unwrap().blocking_wait().unwrap();
    for slot in 0..20 {
        s.accept(50_000 + slot, LOW, &[0xCC; 2000]);
    }
    s.log.truncate_from(Slot(40_000).next()).unwrap().blocking_wait().unwrap();
    s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
    let promised = s.log.stats().log_stats.accepted;
    for slot in 10..60 {
        s.log.learn(Slot(slot), LOW, &[slot as u8; 2000]).unwrap().blocking_wait().unwrap();
    }
    s.log.maintenance().reclaim().unwrap();
    assert!(s.log.stats().log.after >= promised, "{:?}", s.log.stats());
    let s = s.kill(Mode::Durable);
    assert_eq!((s.log.promised(), s.log.floor()), (Some(HIGH), Some(Slot(4))));
    assert_eq!(s.committed_slots(), (5..60).collect::<Vec<_>>());
}

/// A log with a promise, an old uncommitted slot, one of a higher ballot, and one far ahead in
/// segments that are otherwise dead once the floor is raised.
fn worth_reclaiming(mode: Mode) -> Setting {
    let s = log_with(mode, |options| options.checkpoint_every = 1024);
    s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
    s.log.learn(Slot(9999), LOW, b"far ahead").unwrap().blocking_wait().unwrap();
    s.accept(8888, HIGH, b"old and uncommitted");
    for slot in 0..150 {
        s.accept(slot, HIGH, &vec![slot as u8; 2000]);
        s.commit(slot, HIGH);
    }
    s.accept(8887, HIGH, b"lower");
    s.accept(8887, HIGHER, b"higher");
    s
}

/// Checks the slots that have to be there; `floor` is the lowest that may be.
fn look(log: &ConsensusLog, mode: Mode, committed_8888: bool, floor: u64) {
    assert!(log.promised() >= Some(HIGH));
    let start = log.floor().map_or(0, |floor| floor.0 + 1);
    assert!(start >= floor && start <= 140, "{start}");
    let guard = log.pin();
    for slot in start..150 {
        let entry = log.read_committed(Slot(slot), &guard).unwrap();
        assert_eq!((entry.value(), entry.ballot()), (&[slot as u8; 2000][..], HIGH));
    }
    assert_eq!(log.read_committed(Slot(9999), &guard).unwrap().value(), b"far ahead");
    if mode == Mode::Durable {
        let entry = log.read(Slot(8888), &guard).unwrap();
        assert_eq!((entry.value(), entry.ballot()), (&b"old and uncommitted"[..], HIGH));
        assert!(entry.is_committed() || !committed_8888);
        let entry = log.read(Slot(8887), &guard).unwrap();
        assert_eq!((entry.value(), entry.ballot()), (&b"higher"[..], HIGHER));
    }
    let count = 150 - start + 1 + u64::from(committed_8888);
    assert_eq!(log.stats().committed.unwrap().count, count);
    assert_eq!(log.frontier(), Some(Slot(149)));
}

/// Guards against a segment that is dropped before its copies, or the checkpoint that names them,
/// are durable; against a copy that changes what it copies; and against a crash after which space
/// never comes back.
#[test]
fn power_cut_at_every_operation_of_two_reclaim_passes() {
    const WAYS: [Persist; 4] =
        [Persist::Nothing, Persist::Everything, Persist::Torn, Persist::Random];
    for mode in MODES {
        let start = worth_reclaiming(mode);
        start.disk.kill();
        let disk = start.disk.clone();
        drop(start);
        disk.power_on();
        let live = |disk: &SimDisk, at: Option<CutPoint>, how: Persist, to: u64| {
            let (options, engine): (Options, Engine) = driven(disk, mode);
            if let Some(at) = at {
                disk.cut_power_at(at, how);
            }
            let begin = disk.operations();
            let log = ConsensusLog::builder(DIR).options(options).open();
            let mut raised = false;
            if let Ok(log) = &log {
                let ticket = log.truncate_before(Slot(to));
                let is_durable = ticket.is_ok_and(|ticket| ticket.blocking_wait().is_ok());
                raised = is_durable && disk.is_on();
                drop(log.maintenance().reclaim());
            }
            disk.cancel_cut();
            let operations = disk.operations() - begin;
            if at.is_some() && disk.is_on() {
                disk.power_cut(how);
            }
            let log = log.map(|log| {
                if at.is_none() {
                    assert!(raised);
                    look(&log, mode, false, to);
                }
            });
            assert!(at.is_some() || log.is_ok(), "{log:?}");
            engine.stop();
            disk.power_on();
            (operations, raised)
        };
        let (operations, _) = live(&disk.fork(1), None, Persist::Nothing, 130);
        assert!(operations > 20, "{operations}");
        let base = disk.operations();
        for n in 0..operations {
            let how = WAYS[(n % 4) as usize];
            for at in [CutPoint::Before(base + n), CutPoint::During(base + n)] {
                let disk = disk.fork(n);
                let (_, first) = live(&disk, Some(at), how, 130);
                let again = CutPoint::During(disk.operations() + n * 7 % operations);
                let (_, second) = live(&disk, Some(again), Persist::Random, 140);
                let floor = if second {
                    140
                } else if first {
                    130
                } else {
                    0
                };
                let s = open_on(&disk, mode, |_| {});
                look(&s.log, mode, false, floor);
                s.log.truncate_before(Slot(140)).unwrap().blocking_wait().unwrap();
                s.log.maintenance().reclaim().unwrap();
                look(&s.log, mode, false, 140);
                let bytes = s.log.stats().log.disk_bytes;
                assert!(bytes <= 3 * (64 << 10), "{bytes} bytes after {at:?}");
                let s = s.kill(mode);
                look(&s.log, mode, false, 140);
                s.log.close().unwrap();
            }
        }
    }
}

/// Guards against a copy of a value that was replaced, committed or dropped while it was read.
#[test]
fn slots_change_while_they_are_copied() {
    for mode in MODES {
        let (disk, engine) = (SimDisk::new(3), Engine::new(1).unwrap());
        let mut options = Options::on(Arc::new(disk.process()));
        options.mode = mode;
        options.log.segment_size = 64 << 10;
        options.log.engine = Some(engine.clone());
        let log = ConsensusLog::builder(DIR).options(options).open().unwrap();
        // Every third is uncommitted: all of them are among the dropped records.
        const OPEN: u64 = 20_000;
        for slot in 0..600u64 {
            log.accept(Slot(OPEN + slot), LOW, &value(slot)).unwrap().blocking_wait().unwrap();
            if slot % 3 == 0 {
                log.learn(Slot(slot / 3), LOW, &[7; 1500]).unwrap().blocking_wait().unwrap();
            }
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for slot in 0..600u64 {
                    match slot % 4 {
                        0 => drop(log.accept(Slot(OPEN + slot), HIGH, b"replaced").unwrap()),
                        1 => drop(log.commit(Slot(OPEN + slot), LOW).unwrap()),
                        _ => {}
                    }
                }
                done.store(true, SeqCst);
            });
            scope.spawn(|| {
                log.truncate_before(Slot(100)).unwrap().blocking_wait().unwrap();
                while !done.load(SeqCst) {
                    log.maintenance().reclaim().unwrap();
                }
                log.truncate_before(Slot(190)).unwrap().blocking_wait().unwrap();
                log.maintenance().reclaim().unwrap();
            });
        });
        assert!(log.stats().reclaimed.records_copied > 0 || mode == Mode::Volatile);
        log.close().unwrap();
        drop(log);
        engine.stop();
        let s = open_on(&disk, mode, |_| {});
        let guard = s.log.pin();
        for slot in 0..600 {
            let entry = s.log.read(Slot(OPEN + slot), &guard).unwrap();
            let expected = match slot % 4 {
                0 => (b"replaced".to_vec(), HIGH, false),
                1 => (value(slot), LOW, true),
                _ => (value(slot), LOW, false),
            };
            let reported = (entry.value().to_vec(), entry.ballot(), entry.is_committed());
            assert_eq!(reported, expected, "slot {slot}");
        }
        assert_eq!(s.log.floor(), Some(Slot(189)));
    }
}

/// Guards against a close that waits for a pass to come to its end.
#[test]
fn close_ends_a_reclaim_pass() {
    let (disk, engine) = (SimDisk::new(3), Engine::new(1).unwrap());
    let mut options = Options::on(Arc::new(disk.process()));
    options.log.segment_size = 64 << 10;
    options.log.engine = Some(engine.clone());
    let log = ConsensusLog::builder(DIR).options(options).open().unwrap();
    fill(&log, 0..2000, 1000);
    std::thread::scope(|scope| {
        let reclaims = scope.spawn(|| {
            log.truncate_before(Slot(1990)).unwrap().blocking_wait().unwrap();
            while log.maintenance().reclaim().is_ok() {}
            log.maintenance().reclaim()
        });
        while log.floor().is_none() {
            std::thread::yield_now();
        }
        log.close().unwrap();
        assert!(matches!(reclaims.join().unwrap(), Err(StorageError::Closed)));
    });
    drop(log);
    engine.stop();
    let s = open_on(&disk, Mode::Durable, |_| {});
    assert_eq!(s.committed_slots(), (1990..2000).collect::<Vec<_>>());
    s.log.maintenance().reclaim().unwrap();
    assert!(s.log.stats().log.disk_bytes <= 3 * (64 << 10));
}
