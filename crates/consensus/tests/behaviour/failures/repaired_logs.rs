//! A log of which `repair` quarantined something may have forgotten anything that was stored there.
//! It opens for reading, promises nothing, and what it still reports is true.
//!
//! Guards: an accept that was replaced by a quarantined one, reported as chosen because a marker
//! after the gap commits the slot; a log whose segment is missing, or whose manifest was rebuilt,
//! that does not open, or that promises again.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::ops::ControlFlow;
use std::path::Path;

use esker_consensus::{
    AcceptError, ConsensusLog, IterateOptions, Mode, PromiseError, ReadError, Slot, StorageError,
    inspect_on,
};
use esker_disk::sim::SimDisk;
use esker_log::{Engine, repair};

use crate::fixture::{DIR, HIGH, HIGHER, LOW, Setting, driven, log, open_on};

fn close(s: Setting) -> SimDisk {
    s.log.close().unwrap();
    let disk = s.disk.clone();
    drop(s);
    disk
}

fn repaired(disk: &SimDisk) -> Setting {
    let engine = Engine::manual();
    let mut options = esker_log::Options::on(std::sync::Arc::new(disk.process()));
    options.segment_size = 64 << 10;
    options.engine = Some(engine.clone());
    repair(DIR, &options).unwrap();
    engine.stop();
    open_on(disk, Mode::Durable, |_| {})
}

fn segments(disk: &SimDisk) -> Vec<String> {
    let names = disk.files(Path::new(DIR)).unwrap();
    names.into_iter().filter(|name| name.ends_with(".seg")).collect()
}

/// Flips a bit of the record that holds this value.
fn damage(disk: &SimDisk, value: &[u8]) {
    for name in segments(disk) {
        let path = Path::new(DIR).join(name);
        let bytes = disk.contents(&path).unwrap();
        if let Some(at) = bytes.windows(value.len()).position(|part| part == value) {
            return disk.flip_bit(&path, at as u64 * 8).unwrap();
        }
    }
    panic!("no segment holds the value");
}

/// Without opening it, the committed slots are the same.
fn is_inspected(s: &Setting) {
    let found = inspect_on(std::sync::Arc::new(s.disk.process()), DIR).unwrap();
    let mut options = IterateOptions::default();
    options.skip_errors = true;
    let mut reported = Vec::new();
    s.log
        .iterate(.., options, |entry| {
            reported.push((entry.slot().0, entry.ballot(), entry.value().to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    let slots = found.slots().unwrap();
    let committed = slots.iter().filter(|(_, slot)| slot.committed);
    let seen: Vec<_> = committed
        .map(|(n, slot)| (n.0, slot.ballot, found.values().get(*n, slot).unwrap().to_vec()))
        .collect();
    assert_eq!(seen, reported);
    assert!(!seen.is_empty());
}

fn is_read_only(log: &ConsensusLog) {
    assert!(matches!(
        log.promise(HIGHER, Slot(0)),
        Err(PromiseError::Storage(StorageError::ReadOnly { .. }))
    ));
    assert!(matches!(
        log.accept(Slot(90), HIGHER, b"x"),
        Err(AcceptError::Storage(StorageError::ReadOnly { .. }))
    ));
}

/// Neither a read nor an iteration passes over this slot.
fn is_lost(log: &ConsensusLog, slot: u64) {
    let guard = log.pin();
    let read = log.read(Slot(slot), &guard);
    assert!(
        matches!(read, Err(ReadError::Storage(StorageError::CorruptedEntry { .. }))),
        "{read:?}"
    );
    let replayed = log
        .iterate(Slot(slot)..=Slot(slot), IterateOptions::default(), |_| ControlFlow::Continue(()));
    assert!(
        matches!(replayed, Err(ReadError::Storage(StorageError::CorruptedEntry { .. }))),
        "{replayed:?}"
    );
}

/// Both ways to mark slots as committed.
fn replaced_and_lost(commit: impl Fn(&ConsensusLog)) {
    let s = log(Mode::Durable);
    s.accept(0, LOW, b"the first value, which was replaced");
    s.accept(0, HIGH, b"the second value, which was chosen");
    commit(&s.log);
    s.accept(1, HIGH, b"accepted after the gap");
    commit_one(&s.log, 1);
    let disk = close(s);
    damage(&disk, b"the second value, which was chosen");
    let s = repaired(&disk);
    is_read_only(&s.log);
    let guard = s.log.pin();
    let reported = s.log.read(Slot(0), &guard).map(|entry| entry.value().to_vec());
    assert!(
        matches!(
            reported,
            Err(ReadError::Storage(StorageError::CorruptedEntry { slot: Slot(0), .. }))
        ),
        "{reported:?}"
    );
    assert_eq!(s.committed(1), b"accepted after the gap");
    is_inspected(&s);
}

fn commit_one(log: &ConsensusLog, slot: u64) {
    log.commit(Slot(slot), HIGH).unwrap().blocking_wait().unwrap();
}

#[test]
fn a_marker_commits_no_value_that_a_lost_accept_replaced() {
    replaced_and_lost(|log| commit_one(log, 0));
}

#[test]
fn a_range_commits_no_value_that_a_lost_accept_replaced() {
    replaced_and_lost(|log| log.commit_through(Slot(0)).unwrap().blocking_wait().unwrap());
}

/// Two segments and more, the promise in the first.
fn filled() -> SimDisk {
    let s = log(Mode::Durable);
    s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap();
    for slot in 0..4 {
        s.accept(slot, HIGH, &[slot as u8 + 1; 40_000]);
        s.commit(slot, HIGH);
    }
    close(s)
}

/// The same without its first segment, which has the promise and slot 0.
fn without_first_segment() -> SimDisk {
    let disk = filled();
    let first = Path::new(DIR).join(&segments(&disk)[0]);
    disk.remove(&first).unwrap();
    disk
}

/// Repairs a log without its first segment: it is read-only, and reports slot 0 as lost.
fn repair_leaves_it_read_only(disk: &SimDisk) {
    let s = repaired(disk);
    is_read_only(&s.log);
    assert_eq!(s.committed(3), [4; 40_000]);
    is_inspected(&s);
    is_lost(&s.log, 0);
}

#[test]
fn a_log_whose_segment_was_missing_is_read_only() {
    let disk = without_first_segment();
    let (options, engine) = driven(&disk, Mode::Durable);
    assert!(ConsensusLog::builder(DIR).options(options).open().is_err());
    engine.stop();
    repair_leaves_it_read_only(&disk);
}

#[test]
fn a_log_that_may_have_lost_its_beginning_is_read_only() {
    let disk = without_first_segment();
    disk.remove(&Path::new(DIR).join("manifest")).unwrap();
    repair_leaves_it_read_only(&disk);
}

#[test]
fn log_that_lost_only_its_manifest_is_writable() {
    let disk = filled();
    disk.remove(&Path::new(DIR).join("manifest")).unwrap();
    let s = repaired(&disk);
    assert_eq!(s.log.promised(), Some(HIGH));
    s.accept(9, HIGH, b"more");
    s.commit(9, HIGH);
    assert_eq!(s.committed(0), [1; 40_000]);
}

/// The entries that an iteration visits, and those that it reports as skipped, with and without
/// uncommitted entries.
fn iterated(log: &ConsensusLog, include_uncommitted: bool) -> (Vec<u64>, Vec<u64>) {
    let mut options = IterateOptions::default();
    options.include_uncommitted = include_uncommitted;
    let stops = log.iterate(.., options, |_| ControlFlow::Continue(()));
    assert!(
        matches!(stops, Err(ReadError::Storage(StorageError::CorruptedEntry { .. }))),
        "{stops:?}"
    );
    options.skip_errors = true;
    let mut visited = Vec::new();
    let done = log
        .iterate(.., options, |entry| {
            visited.push(entry.slot().0);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((done.visited, done.unreadable), (visited.len() as u64, done.skipped.len() as u64));
    (visited, done.skipped.iter().map(|(slot, _)| slot.0).collect())
}

/// Twenty accepts, of which fifteen are committed, each by a marker of its own.
fn fifteen_of_twenty() -> Setting {
    let s = log(Mode::Durable);
    for slot in 0..20 {
        s.accept(slot, HIGH, format!("the value of slot {slot:02}").as_bytes());
    }
    for slot in 0..15 {
        s.commit(slot, HIGH);
    }
    s
}

/// Guards against an iteration that ends at the highest surviving slot, or at the frontier only,
/// or that skips the slots of accepts that were lost.
#[test]
fn iteration_reports_each_lost_slot() {
    for (closed, lost) in [(true, 19), (true, 4), (false, 19), (false, 4)] {
        let s = fifteen_of_twenty();
        let disk = if closed {
            close(s)
        } else {
            s.disk.kill();
            let disk = s.disk.clone();
            drop(s);
            disk.power_on();
            disk
        };
        damage(&disk, format!("the value of slot {lost:02}").as_bytes());
        let s = repaired(&disk);
        // A marker may commit another accept than one before the gap.
        let gone = if lost == 19 { 0..15 } else { 0..5 };
        let guard = s.log.pin();
        for slot in gone.clone() {
            let read = s.log.read(Slot(slot), &guard);
            assert!(
                matches!(read, Err(ReadError::Storage(StorageError::CorruptedEntry { .. }))),
                "slot {slot}: {read:?}"
            );
        }
        let gone: Vec<u64> = gone.collect();
        let committed = (gone.len() as u64..15).collect::<Vec<_>>();
        assert_eq!(iterated(&s.log, false), (committed, gone.clone()), "closed: {closed}");
        let all = (gone.len() as u64..20).filter(|slot| *slot != lost).collect::<Vec<_>>();
        assert_eq!(iterated(&s.log, true), (all, gone.clone()), "closed: {closed}");
        let found = inspect_on(std::sync::Arc::new(s.disk.process()), DIR).unwrap();
        let lost_range = vec![Slot(0)..=Slot(gone.len() as u64 - 1)];
        for include_uncommitted in [false, true] {
            let mut lost = Vec::new();
            found.lost(include_uncommitted, |range| lost.push(range)).unwrap();
            assert_eq!(lost, lost_range);
        }
        let each = |_: &esker_consensus::Entry<'_>| ControlFlow::Continue(());
        for replayed in [
            s.log.iterate(Slot(3).., IterateOptions::default(), each),
            s.log.iterate(Slot(1)..=Slot(2), IterateOptions::default(), each),
        ] {
            assert!(
                matches!(replayed, Err(ReadError::Storage(StorageError::CorruptedEntry { .. }))),
                "{replayed:?}"
            );
        }
        let whole = s.log.iterate(Slot(5)..=Slot(8), IterateOptions::default(), each);
        assert_eq!(whole.is_ok(), lost == 4, "{whole:?}");
    }
}

/// A run of slots without an index page is reported once, also after the last page.
#[test]
fn iteration_reports_lost_pages() {
    let s = log(Mode::Durable);
    for slot in [4096, 3 * 4096, 5 * 4096, 7 * 4096] {
        let value = format!("the value of slot {slot:05}");
        s.log.learn(Slot(slot), HIGH, value.as_bytes()).unwrap().blocking_wait().unwrap();
    }
    let disk = close(s);
    damage(&disk, b"the value of slot 12288");
    damage(&disk, b"the value of slot 28672");
    let s = repaired(&disk);
    let mut options = IterateOptions::default();
    options.skip_errors = true;
    let mut visited = Vec::new();
    let reported = |from: u64, to: u64, visited: &mut Vec<u64>| {
        let visit = |entry: &esker_consensus::Entry<'_>| {
            visited.push(entry.slot().0);
            ControlFlow::Continue(())
        };
        let done = s.log.iterate(Slot(from)..=Slot(to), options, visit).unwrap();
        done.skipped.iter().map(|(slot, _)| slot.0).collect::<Vec<_>>()
    };
    assert_eq!(reported(8190, 20_480, &mut visited), [8190, 8191, 8192]);
    assert_eq!(reported(24_574, u64::MAX, &mut visited), [24_574, 24_575, 24_576]);
    assert_eq!(visited, [20_480]);
}
