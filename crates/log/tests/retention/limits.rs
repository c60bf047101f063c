//! Retention: by segments, bytes, records and age; by itself, from the old end, and durably.
//!
//! Guards W-1, W-1a, L-12 and of LT-7 what is about space.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use esker_disk::sim::{Persist, SimDisk};
use esker_log::{Engine, Log, Options, Policy, Seq};

use crate::fixture::{self, DIR, all, append, driven, payload, payloads};

fn open(set: impl FnOnce(&mut Options)) -> (Log, SimDisk, Engine) {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    set(&mut options);
    (Log::builder(DIR).options(options).open().unwrap(), disk, engine)
}

/// One run, which ends with the newest record.
fn check(log: &Log) {
    let oldest = log.oldest().0;
    assert_eq!(all(log), payloads(oldest..=log.durable().0));
    let metadata = log.metadata();
    assert_eq!(metadata.after, Seq(oldest - 1));
    assert_eq!(metadata.records, log.durable().0 - metadata.after.0);
}

#[test]
fn without_a_retention_everything_is_kept() {
    let (log, _, engine) = open(|_| {});
    append(&log, 800);
    engine.run();
    assert!(log.metadata().segments > 8);
    assert_eq!(all(&log), payloads(1..=800));
    log.close().unwrap();
}

/// Requirements: W-1.
#[test]
fn by_segments() {
    let (log, disk, engine) = open(|options| options.retention.segments = Some(3));
    let mut most = 0;
    for _ in 0..100 {
        append(&log, 10);
        engine.run();
        check(&log);
        most = most.max(log.metadata().segments);
    }
    assert_eq!(most, 3);
    let files = disk.files(Path::new(DIR)).unwrap();
    let files = files.iter().filter(|name| name.ends_with(".seg") || name.ends_with(".spare"));
    // The ring, the segment made ahead, and spares.
    assert!(files.count() <= 3 + 1 + 2);
    log.close().unwrap();
}

/// What close makes durable may be more than the limits let stay.
#[test]
fn a_closed_log_keeps_to_its_limits() {
    let (log, disk, _) = open(|options| {
        options.retention.segments = Some(3);
        options.buffers = 64;
        options.policy = Policy::Batch(NonZeroU64::new(1000).unwrap());
    });
    for seq in 1..=400 {
        drop(log.append(payload(seq)).unwrap());
    }
    log.close().unwrap();
    let files = disk.files(Path::new(DIR)).unwrap();
    assert_eq!(files.iter().filter(|name| name.ends_with(".seg")).count(), 3, "{files:?}");
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    check(&log);
    log.close().unwrap();
}

/// Requirements: LT-7.
#[test]
fn by_bytes() {
    let most = 200 << 10;
    let (log, _, engine) = open(|options| options.retention.bytes = Some(most));
    for _ in 0..100 {
        append(&log, 10);
        engine.run();
        check(&log);
        assert!(log.metadata().disk_bytes <= most, "{}", log.metadata().disk_bytes);
    }
    assert!(log.oldest() > Seq(700));
    assert!(log.metadata().records >= 30, "more was dropped than had to be");
    log.close().unwrap();
}

/// At least so many stay, and at most one segment's more.
#[test]
fn by_records() {
    let (log, _, engine) = open(|options| {
        options.retention.records = Some(100);
        options.segment_records = Some(30);
    });
    for _ in 0..100 {
        append(&log, 10);
        engine.run();
        check(&log);
        let records = log.metadata().records;
        assert!(records >= log.durable().0.min(100), "{records} of {}", log.durable());
        assert!(records <= 100 + 30, "{records}");
    }
    log.close().unwrap();
}

#[test]
fn by_age() {
    let (log, _, engine) = open(|options| {
        options.retention.age = Some(Duration::from_secs(60));
        options.segment_records = Some(10);
    });
    append(&log, 25);
    engine.advance(Duration::from_secs(50));
    append(&log, 20);
    engine.advance(Duration::from_secs(9));
    append(&log, 10);
    engine.run();
    check(&log);
    assert_eq!(log.oldest(), Seq(1));
    engine.advance(Duration::from_secs(2));
    append(&log, 10);
    engine.run();
    check(&log);
    // 21 to 30 ended within the time, so that they stay; the two segments before go.
    assert_eq!(log.oldest(), Seq(21));
    log.close().unwrap();
}

/// Every limit counts.
#[test]
fn the_narrowest_limit_holds() {
    let (log, _, engine) = open(|options| {
        options.retention.segments = Some(50);
        options.retention.records = Some(20);
        options.segment_records = Some(10);
    });
    append(&log, 200);
    engine.run();
    check(&log);
    assert!(log.metadata().records <= 30);
    log.close().unwrap();
}

/// No call is made: the threads of the process drop the oldest segments.
/// Requirements: W-1a.
#[test]
fn ring_recycles_segments_without_calls() {
    let disk = SimDisk::new(1);
    let mut options = fixture::small(&disk);
    options.retention.segments = Some(3);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 1_000);
    fixture::until("three segments are left", || log.metadata().segments <= 3);
    check(&log);
    log.close().unwrap();
}

#[test]
fn dropped_records_never_return() {
    for persist in [Persist::Nothing, Persist::Everything] {
        let (log, disk, engine) = open(|options| options.retention.segments = Some(3));
        append(&log, 500);
        engine.run();
        let (oldest, newest) = (log.oldest().0, log.durable().0);
        disk.power_cut(persist);
        disk.power_on();
        drop(log);
        let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        assert_eq!(all(&log), payloads(oldest..=newest));
        log.close().unwrap();
    }
}

/// A segment that left the log is used again: new segments cost no new space.
/// Requirements: W-1.
#[test]
fn segments_are_recycled() {
    let (log, disk, engine) = open(|options| options.retention.segments = Some(3));
    append(&log, 400);
    engine.run();
    // A new floor is a new manifest, for which no file is made.
    let made = || disk.stats().creates;
    let (before, used) = (made(), disk.used());
    append(&log, 800);
    engine.run();
    assert!(made() - before < 8, "{} segment files were made", made() - before);
    assert!(disk.used() <= used + (128 << 10), "{} and {used}", disk.used());
    check(&log);
    log.close().unwrap();
}
