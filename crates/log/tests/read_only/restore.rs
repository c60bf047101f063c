//! Restores that are killed at each of their operations, and run again.
//!
//! Bug: a restore that was killed while it wrote its first file could not be run again. Nor could
//! one that was killed after its last step: the directory was not empty.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use esker_disk::Disk;
use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::{Backup, Engine, Error, Log, ReadOnlyLog, Result, Retention, Seq, Start};

use crate::fixture::{DIR, ReadRecord, append, driven, payloads, seen};

const BACKUP: &str = "/backup";
/// Below a directory that the restore creates, too.
const RESTORED: &str = "/new/restored";

fn open(disk: &SimDisk, dir: &str) -> Log {
    Log::builder(dir).options(driven(disk).0).open().unwrap()
}

fn reader(disk: &SimDisk, dir: &str) -> Result<ReadOnlyLog> {
    ReadOnlyLog::builder(dir)
        .disk(Arc::new(disk.clone()))
        .engine(Engine::manual())
        .open()
        .map_err(Into::into)
}

fn restore(disk: &SimDisk) -> Result<Backup> {
    reader(disk, BACKUP)?.storage().restore(RESTORED).map_err(Into::into)
}

#[derive(PartialEq)]
struct Content {
    records: Vec<ReadRecord>,
    snapshots: Vec<(u64, Vec<u8>)>,
    offsets: Vec<(String, Seq)>,
}

/// The content of the restored log.
fn content(disk: &SimDisk) -> Content {
    let log = reader(disk, RESTORED).unwrap();
    assert!(log.storage().is_closed_cleanly());
    let mut stream = log.stream(Start::Oldest).unwrap();
    let records =
        std::iter::from_fn(|| stream.try_next().unwrap()).flat_map(|batch| seen(&batch)).collect();
    let snapshots = log.snapshots().list().unwrap().into_iter().map(|at| {
        let mut content = Vec::new();
        log.snapshots().reader(at).unwrap().unwrap().read_to_end(&mut content).unwrap();
        (at, content)
    });
    let offsets = log.consumers().list().unwrap();
    Content { records, snapshots: snapshots.collect(), offsets }
}

fn files(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let names = disk.files(Path::new(RESTORED)).unwrap_or_default();
    let contents = names.into_iter().map(|name| {
        let path = Path::new(RESTORED).join(&name);
        (name, disk.contents(&path).unwrap_or_default())
    });
    contents.collect()
}

/// A backup of some segments, a snapshot and an offset.
fn backed_up(records: u64) -> SimDisk {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, records);
    log.retention().truncate_before(10).unwrap();
    log.snapshots().put(20, &b"state"[..]).unwrap();
    log.consumers().set("billing", Seq(15)).unwrap();
    log.storage().backup(BACKUP).unwrap();
    disk
}

/// Kills the restore at an operation from here. Returns whether it ended before.
fn killed(disk: &SimDisk, at: CutPoint) -> bool {
    disk.kill_at(at);
    let ended = restore(&disk.process()).is_ok();
    disk.cancel_cut();
    disk.kill();
    disk.power_on();
    ended
}

/// Two processes in a row are killed, at any two moments. A third one ends with the whole log, also
/// if the power is lost right after it.
#[test]
fn a_restore_that_is_killed_at_any_moment_is_run_again() {
    let disk = backed_up(120);
    let whole = {
        let disk = disk.fork(1);
        restore(&disk).unwrap();
        content(&disk)
    };
    assert_eq!(whole.records, payloads(10..=120));
    assert_eq!((whole.snapshots.len(), whole.offsets.len()), (1, 1));
    let mut ended = [0; 2];
    let mut first = 0;
    loop {
        let once = disk.fork(first);
        if killed(&once, CutPoint::During(once.operations() + first)) {
            ended[0] += 1;
        }
        // Each second moment after a few of the first ones, and some after the others.
        let step = if first % 9 == 0 { 1 } else { 13 };
        let mut second = first % step;
        loop {
            let twice = once.fork(second);
            let is_ended = killed(&twice, CutPoint::Before(twice.operations() + second));
            restore(&twice.process()).unwrap_or_else(|error| panic!("{first}, {second}: {error}"));
            twice.power_cut(Persist::Nothing);
            twice.power_on();
            assert!(content(&twice) == whole, "killed at {first} and {second}");
            if is_ended {
                ended[1] += 1;
                break;
            }
            second += step;
        }
        if ended[0] > 0 {
            break;
        }
        first += 1;
    }
    assert!(first > 40 && ended[1] > 40, "{first}, {ended:?}");
}

/// A restore that was complete changes nothing when it is run again.
#[test]
fn a_complete_restore_is_found_complete() {
    let disk = backed_up(120);
    let first = restore(&disk).unwrap();
    let before = files(&disk);
    let again = restore(&disk).unwrap();
    assert_eq!((again.durable, again.position), (first.durable, first.position));
    assert_eq!((again.segments, again.copied, again.bytes), (first.segments, 0, 0));
    assert!(files(&disk) == before);
}

/// Each of them keeps what it has.
#[test]
fn a_log_is_restored_to_a_directory_of_its_own() {
    let disk = backed_up(60);
    let refused = |disk: &SimDisk, what: &str| {
        let before = files(disk);
        let error = restore(disk).unwrap_err();
        assert!(matches!(error, Error::NotThisBackup { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert!(files(disk) == before, "{what}");
    };
    let other = disk.fork(1);
    other.create_dir(Path::new(RESTORED)).unwrap();
    for name in ["notes.txt", "checkpoint", "00000000000000000001.seg"] {
        let other = other.fork(1);
        other.put(&Path::new(RESTORED).join(name), b"mine").unwrap();
        refused(&other, "it holds other files");
    }
    let other = disk.fork(1);
    open(&other, "/other").storage().backup(RESTORED).unwrap();
    refused(&other, "it is of the log");
    let other = disk.fork(1);
    restore(&other).unwrap();
    open(&other, RESTORED).close().unwrap();
    refused(&other, "opened for writing");
    // The backup has more than the copy, and the other way round.
    let log = open(&disk, DIR);
    let other = disk.fork(1);
    restore(&other).unwrap();
    append(&log, 1);
    log.storage().backup(BACKUP).unwrap();
    let older = disk.fork(1);
    for (name, bytes) in files(&other) {
        older.create_dir(Path::new(RESTORED)).unwrap();
        older.put(&Path::new(RESTORED).join(name), &bytes).unwrap();
    }
    refused(&older, "another copy");
    log.close().unwrap();
}

/// A later backup to the directory was interrupted, and has records that this one does not have.
#[test]
fn an_unfinished_backup_with_more_records_is_not_replaced() {
    // In one session: a backup of a later one is refused as newer.
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 60);
    log.storage().backup(BACKUP).unwrap();
    append(&log, 200);
    log.storage().backup(RESTORED).unwrap();
    append(&log, 300);
    log.retention().truncate_before(500).unwrap();
    let mut unfinished = 0;
    for at in 0.. {
        let disk = disk.fork(at);
        disk.kill_at(CutPoint::Before(disk.operations() + at));
        let later = reader(&disk.process(), DIR)
            .and_then(|log| log.storage().backup(RESTORED).map_err(Into::into));
        disk.cancel_cut();
        disk.power_on();
        let before = files(&disk);
        let is_unfinished = matches!(reader(&disk, RESTORED), Err(Error::NotALog { .. }));
        let error = restore(&disk).unwrap_err();
        assert!(matches!(error, Error::NotThisBackup { .. }), "{error}");
        assert!(files(&disk) == before);
        unfinished += u32::from(is_unfinished);
        if later.is_ok() {
            break;
        }
    }
    assert!(unfinished > 3, "{unfinished}");
}

/// Its first writer without limits is warned, as one of the original would be.
#[test]
fn a_restored_log_knows_the_retention_of_the_original() {
    let disk = SimDisk::new(1);
    let mut options = driven(&disk).0;
    options.retention.segments = Some(40);
    let retention = options.retention;
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 10);
    log.storage().backup(BACKUP).unwrap();
    restore(&disk).unwrap();
    let restored = open(&disk, RESTORED);
    assert_eq!(restored.storage().recovery().prior_retention, retention);
    assert_eq!(restored.retention().limits(), Retention::NONE);
}
