//! The bytes of payloads that a log stores: counted while it is written, kept by footers, and
//! counted again by recovery.
//!
//! Guards: a count that a way of opening loses or takes twice, and one that costs reading every
//! record.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use esker_disk::Disk;
use esker_disk::sim::SimDisk;
use esker_log::{Log, Options, PriorShutdown, ReadOnlyLog, Stored, verify};

use crate::fixture::{DIR, append, append_many, driven, payload};

const BLOCK: u64 = 4096;

/// With an index so dense that a clean close keeps the footer of the newest segment.
fn options(disk: &SimDisk) -> Options {
    let mut options = driven(disk).0;
    options.index_bytes = 4096;
    options.index_records = 1;
    options
}

fn open(disk: &SimDisk) -> Log {
    Log::builder(DIR).options(options(disk)).open().unwrap()
}

fn stored(disk: &SimDisk) -> Stored {
    ReadOnlyLog::builder(DIR).options(options(disk)).open().unwrap().storage().stored().unwrap()
}

fn bytes(numbers: std::ops::RangeInclusive<u64>) -> Option<u64> {
    Some(numbers.map(|seq| payload(seq).len() as u64).sum())
}

/// As the writer counts, and as a reader does that begins now.
#[track_caller]
fn count(log: &Log, disk: &SimDisk, last: u64) {
    assert_eq!(log.storage().metadata().payload_bytes, bytes(1..=last));
    assert_eq!(stored(disk).payload_bytes, bytes(1..=last));
}

#[test]
fn payload_bytes_are_exact_after_each_way_of_opening() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    count(&log, &disk, 0);
    append(&log, 40);
    append_many(&log, 60);
    count(&log, &disk, 100);
    assert!(log.storage().metadata().segments > 2, "no segment is sealed");
    log.close().unwrap();

    let log = open(&disk);
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
    count(&log, &disk, 100);
    append(&log, 9);
    count(&log, &disk, 109);
    disk.kill();
    disk.power_on();
    drop(log);

    // The newest segment is small: all of it is copied to a new one.
    let log = open(&disk);
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Unclean);
    count(&log, &disk, 109);
    append_many(&log, 200);
    count(&log, &disk, 309);
    log.close().unwrap();
    assert!(verify(DIR, options(&disk)).unwrap().corruption.is_empty());
}

/// Recovery leaves the units that were durable where they are, if they are more than it copies.
#[test]
fn payload_bytes_are_exact_where_recovery_splits_a_segment() {
    let disk = SimDisk::new(1);
    let large = || {
        let mut options = options(&disk);
        options.segment_size = 4 << 20;
        options
    };
    let log = Log::builder(DIR).options(large()).open().unwrap();
    append(&log, 100);
    disk.kill();
    disk.power_on();
    drop(log);
    // Without the page the last unit is not known to be durable.
    disk.create_dir(Path::new(DIR)).unwrap().unlink("mark").unwrap();
    let log = Log::builder(DIR).options(large()).open().unwrap();
    assert_eq!(log.storage().recovery().copied, 1);
    assert_eq!(log.storage().metadata().segments, 2);
    count(&log, &disk, 100);
    log.close().unwrap();
    count(&Log::builder(DIR).options(large()).open().unwrap(), &disk, 100);
}

/// A reader counts the records that can be read. The writer's memory has whole segments.
#[test]
fn a_reader_does_not_count_dropped_payloads() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append(&log, 40);
    log.retention().truncate_before(4).unwrap();
    assert_eq!(log.storage().metadata().payload_bytes, bytes(1..=40));
    let now = stored(&disk);
    assert_eq!((now.records, now.payload_bytes), (37, bytes(4..=40)));
    assert_eq!(now.bytes, log.storage().metadata().disk_bytes);
    log.retention().truncate_before(41).unwrap();
    let now = stored(&disk);
    assert_eq!((now.records, now.payload_bytes), (0, Some(0)));
    log.close().unwrap();
}

#[test]
fn payload_bytes_are_known_without_reading_the_records() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append(&log, 40);
    log.close().unwrap();
    let names = disk.files(Path::new(DIR)).unwrap();
    for name in names.iter().filter(|name| name.ends_with(".seg")) {
        disk.make_unreadable(&Path::new(DIR).join(name), BLOCK).unwrap();
    }
    assert_eq!(stored(&disk).payload_bytes, bytes(1..=40));
}
