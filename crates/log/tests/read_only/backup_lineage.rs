//! A backup is replaced only by a log that has everything in it, or had and dropped it.
//!
//! Guards: a copy that continued by itself, or a log that lost records in a repair, which replaces
//! a backup whose records nothing else has any more.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::{Engine, Error, Log, OnCorruption, ReadOnlyLog, ReadOptions, Start, repair};

use crate::fixture::{DIR, Seen, append, driven, payloads, seen};

const COPY: &str = "/copy";
const RESTORED: &str = "/restored";

fn open(disk: &SimDisk, dir: &str) -> Log {
    Log::builder(dir).options(driven(disk).0).open().unwrap()
}

fn read_options(disk: &SimDisk) -> ReadOptions {
    let mut options = ReadOptions::on(Arc::new(disk.clone()));
    options.engine = Some(Engine::manual());
    options
}

fn reader(disk: &SimDisk, dir: &str) -> ReadOnlyLog {
    ReadOnlyLog::builder(dir).options(read_options(disk)).open().unwrap()
}

fn records(disk: &SimDisk, dir: &str) -> Vec<Seen> {
    let mut stream = reader(disk, dir).stream(Start::Oldest).unwrap();
    std::iter::from_fn(|| stream.try_next().unwrap()).flat_map(|batch| seen(&batch)).collect()
}

/// Appends other records than those of the original, up to a number, and drops those below another.
fn go_on(log: &Log, upto: u64, drop_below: u64) {
    while log.accepted().0 < upto {
        log.append("its own").unwrap().blocking_wait().unwrap();
    }
    log.truncate_before(drop_below).unwrap();
}

/// Backs up, in this process and as another one. Neither changes the backup.
fn refused(disk: &SimDisk, log: &Log, dir: &str, what: &str) {
    let before = records(disk, COPY);
    let manifest = disk.contents(&Path::new(COPY).join("manifest")).unwrap();
    for error in [log.backup(COPY).unwrap_err(), reader(disk, dir).backup(COPY).unwrap_err()] {
        assert!(matches!(error, Error::NotThisBackup { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    assert_eq!(disk.contents(&Path::new(COPY).join("manifest")).unwrap(), manifest);
    assert_eq!(records(disk, COPY), before);
}

/// It once replaced the backup silently: the record to compare was not there any more.
#[test]
fn a_restored_log_that_dropped_the_last_record_is_refused() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 20);
    log.backup(RESTORED).unwrap();
    append(&log, 20);
    log.backup(COPY).unwrap();
    for _ in 0..3 {
        open(&disk, RESTORED).close().unwrap();
    }
    let restored = open(&disk, RESTORED);
    go_on(&restored, 60, 50);
    refused(&disk, &restored, RESTORED, "continued by itself");
    // The original dropped that record, too.
    append(&log, 60);
    log.truncate_before(90).unwrap();
    assert_eq!(log.backup(COPY).unwrap().durable.0, 100);
    assert_eq!(records(&disk, COPY), payloads(90..=100));
}

/// A log that was restored after a disaster has all of the backup, and continues it.
#[test]
fn a_restored_log_continues_its_backup_and_the_original_cannot() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 20);
    log.backup(COPY).unwrap();
    reader(&disk, COPY).backup(RESTORED).unwrap();
    let restored = open(&disk, RESTORED);
    go_on(&restored, 30, 1);
    assert_eq!(restored.backup(COPY).unwrap().durable.0, 30);
    // The copy of a copy has its lineage.
    reader(&disk, COPY).backup("/third").unwrap();
    go_on(&restored, 60, 50);
    restored.backup("/third").unwrap();
    log.close().unwrap();
    for _ in 0..3 {
        open(&disk, DIR).close().unwrap();
    }
    let log = open(&disk, DIR);
    append(&log, 10);
    refused(&disk, &log, DIR, "its record 30 is another one");
    append(&log, 50);
    log.truncate_before(70).unwrap();
    refused(&disk, &log, DIR, "continued by itself");
    restored.backup(COPY).unwrap();
}

/// Power is lost at each step of the first opening, and again in the next one.
#[test]
fn a_copy_begins_a_lineage_before_its_first_record() {
    let sealed = SimDisk::new(1);
    let log = open(&sealed, DIR);
    append(&log, 10);
    log.backup(RESTORED).unwrap();
    append(&log, 10);
    log.backup(COPY).unwrap();
    log.close().unwrap();
    let first_of = |disk: &SimDisk, at: u64, persist| {
        disk.cut_power_at(CutPoint::During(disk.operations() + at), persist);
        let opened = Log::builder(RESTORED).options(driven(&disk.process()).0).open();
        let done = opened.is_ok();
        drop(opened);
        disk.cancel_cut();
        disk.power_on();
        done
    };
    let mut tried = 0;
    for persist in [Persist::Nothing, Persist::Random, Persist::Everything] {
        for at in 0.. {
            let disk = sealed.fork(at);
            let done = first_of(&disk, at, persist);
            first_of(&disk, at / 2, persist);
            for _ in 0..3 {
                open(&disk, RESTORED).close().unwrap();
            }
            let restored = open(&disk, RESTORED);
            go_on(&restored, 40, 30);
            refused(&disk, &restored, RESTORED, "continued by itself");
            tried += 1;
            if done {
                break;
            }
        }
    }
    assert!(tried > 60, "{tried}");
}

/// Records that a repair gave up may get other contents under the same numbers.
#[test]
fn a_log_that_lost_records_in_a_repair_is_refused() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 40);
    log.backup(COPY).unwrap();
    log.close().unwrap();
    let newest = disk.files(Path::new(DIR)).unwrap();
    let newest = newest.into_iter().filter(|name| name.ends_with(".seg")).max().unwrap();
    disk.flip_bit(&Path::new(DIR).join(newest), 8 * 4_200).unwrap();
    let mut options = driven(&disk).0;
    options.on_corruption = OnCorruption::Truncate;
    let log = Log::builder(DIR).options(options).open().unwrap();
    assert!(log.accepted().0 < 40);
    refused(&disk, &log, DIR, "known to be durable up to");
    go_on(&log, 60, 50);
    refused(&disk, &log, DIR, "continued by itself");
}

/// As the lineage of the log is not known any more.
#[test]
fn a_log_that_lost_its_manifest_is_compared_by_its_records() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 40);
    log.backup(COPY).unwrap();
    log.close().unwrap();
    disk.remove(&Path::new(DIR).join("manifest")).unwrap();
    repair(DIR, read_options(&disk)).unwrap();
    let log = open(&disk, DIR);
    append(&log, 3);
    assert_eq!(log.backup(COPY).unwrap().durable.0, 43);
    log.close().unwrap();
    disk.remove(&Path::new(DIR).join("manifest")).unwrap();
    repair(DIR, read_options(&disk)).unwrap();
    let log = open(&disk, DIR);
    append(&log, 17);
    log.truncate_before(50).unwrap();
    refused(&disk, &log, DIR, "continued by itself");
}

/// The newest segment of a backup may be the only place that has them.
#[test]
fn quarantined_records_are_not_overwritten_in_the_backup() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 10);
    log.backup(COPY).unwrap();
    append(&log, 3);
    log.close().unwrap();
    let first = Path::new(DIR).join(format!("{:020}.seg", 1));
    disk.flip_bit(&first, 8 * (2 * 4_096 + 100)).unwrap();
    let repaired = repair(DIR, read_options(&disk)).unwrap();
    let lost = &repaired.quarantined[0];
    assert!(lost.from < lost.to && lost.to.0 < 10, "{lost:?}");
    let log = open(&disk, DIR);
    refused(&disk, &log, DIR, "which are quarantined in the log");
    append(&log, 100);
    refused(&disk, &log, DIR, "which are quarantined in the log");
    assert_eq!(records(&disk, COPY), payloads(1..=10));
    // A new backup has the gap, and takes what follows.
    log.backup("/new").unwrap();
    append(&log, 1);
    assert_eq!(log.backup("/new").unwrap().durable.0, 114);
}

/// An interrupted backup left a gap, so that nothing opens the copy and no record can be compared.
#[test]
fn an_interrupted_backup_is_ended_by_its_own_lineage_only() {
    let disk = SimDisk::new(1);
    let log = open(&disk, DIR);
    append(&log, 40);
    log.backup(COPY).unwrap();
    log.backup(RESTORED).unwrap();
    append(&log, 300);
    log.truncate_before(250).unwrap();
    let mut tried = 0;
    for at in 0.. {
        let disk = disk.fork(at);
        disk.cut_power_at(CutPoint::During(disk.operations() + at), Persist::Everything);
        let process = disk.process();
        let done = reader(&process, DIR).backup(COPY).is_ok();
        disk.cancel_cut();
        disk.power_on();
        if done {
            break;
        }
        let found = esker_log::component(COPY, read_options(&disk)).unwrap();
        if found != Some(esker_log::UNFINISHED_BACKUP) {
            continue;
        }
        for _ in 0..3 {
            open(&disk, RESTORED).close().unwrap();
        }
        let restored = open(&disk, RESTORED);
        append(&restored, 300);
        restored.truncate_before(250).unwrap();
        let error = restored.backup(COPY).unwrap_err();
        assert!(error.to_string().contains("continued by itself"), "at {at}: {error}");
        reader(&disk, DIR).backup(COPY).unwrap();
        assert_eq!(records(&disk, COPY), payloads(250..=340));
        tried += 1;
    }
    assert!(tried > 0, "no step leaves a gap");
}
