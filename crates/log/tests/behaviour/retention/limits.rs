//! Retention: by segments, bytes, records and age; by itself, from the old end, and durably.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use esker_disk::sim::{Persist, SimDisk};
use esker_log::{
    Engine, InvalidOption, Log, LogError, Options, Policy, ReadOnlyLog, Retention, RetentionError,
    Seq,
};

use crate::fixture::{self, DIR, all, append, driven, payload, payloads};

fn open(set: impl FnOnce(&mut Options)) -> (Log, SimDisk, Engine) {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    set(&mut options);
    (Log::builder(DIR).options(options).open().unwrap(), disk, engine)
}

/// One run, which ends with the newest record.
fn check_run(log: &Log) {
    let oldest = log.oldest().0;
    assert!(all(log) == payloads(oldest..=log.durable().0));
    assert_eq!(log.storage().metadata().after, Seq(oldest - 1));
}

/// The same, of whole segments.
fn check(log: &Log) {
    check_run(log);
    let metadata = log.storage().metadata();
    assert_eq!(metadata.records, log.durable().0 - metadata.after.0);
}

#[test]
fn without_a_retention_everything_is_kept() {
    let (log, _, engine) = open(|_| {});
    append(&log, 800);
    engine.run();
    assert!(log.storage().metadata().segments > 8);
    assert_eq!(all(&log), payloads(1..=800));
    log.close().unwrap();
}

/// No more segments than the limit are kept, with one that is made ahead and two spares.
#[test]
fn by_segments() {
    let (log, disk, engine) = open(|options| options.retention.segments = Some(3));
    let mut most = 0;
    for _ in 0..100 {
        append(&log, 10);
        engine.run();
        check(&log);
        most = most.max(log.storage().metadata().segments);
    }
    assert_eq!(most, 3);
    let files = disk.files(Path::new(DIR)).unwrap();
    let files = files.iter().filter(|name| name.ends_with(".seg") || name.ends_with(".spare"));
    // The ring, the segment made ahead, and spares.
    assert!(files.count() <= 3 + 1 + 2);
    log.close().unwrap();
}

/// Records that close makes durable may exceed the limits.
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

/// The files of the log never take more than the limit, and no more is dropped than that needs.
#[test]
fn by_bytes() {
    let most = 200 << 10;
    let (log, _, engine) = open(|options| options.retention.bytes = Some(most));
    for _ in 0..100 {
        append(&log, 10);
        engine.run();
        check(&log);
        assert!(
            log.storage().metadata().disk_bytes <= most,
            "{}",
            log.storage().metadata().disk_bytes
        );
    }
    assert!(log.oldest() > Seq(700));
    assert!(log.storage().metadata().records >= 30, "more was dropped than had to be");
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
        let records = log.storage().metadata().records;
        assert!(records >= log.durable().0.min(100), "{records} of {}", log.durable());
        assert!(records <= 100 + 30, "{records}");
    }
    log.close().unwrap();
}

/// To the commit, also in the active segment, and also in a log that gets no records any more.
#[test]
fn by_age() {
    let (log, disk, engine) = open(|options| {
        options.retention.age = Some(Duration::from_secs(60));
        options.segment_records = Some(10);
    });
    append(&log, 25);
    engine.advance(Duration::from_secs(50));
    append(&log, 20);
    engine.advance(Duration::from_secs(9));
    append(&log, 10);
    engine.run();
    check_run(&log);
    assert_eq!(log.oldest(), Seq(1));
    engine.advance(Duration::from_secs(8));
    check_run(&log);
    assert_eq!((log.oldest(), log.storage().metadata().segments), (Seq(26), 4));
    for _ in 0..10 {
        engine.advance(Duration::from_secs(8));
        check_run(&log);
    }
    // Nothing is left but the numbers.
    assert_eq!(
        (log.oldest(), log.durable(), log.storage().metadata().segments),
        (Seq(56), Seq(55), 1)
    );
    disk.power_cut(Persist::Random);
    disk.power_on();
    drop(log);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!((log.oldest(), log.durable()), (Seq(56), Seq(55)));
    append(&log, 3);
    check_run(&log);
    log.close().unwrap();
}

/// Opening and closing check the age, too, also before the timer does: a program that runs for a
/// moment obeys the limit.
#[test]
fn by_age_when_the_log_is_opened_and_closed() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.retention.age = Some(Duration::from_secs(1000));
    let open = || Log::builder(DIR).options(options.clone()).open().unwrap();
    let oldest_and_last = || {
        let reader = ReadOnlyLog::builder(DIR).options(options.clone()).open().unwrap();
        (reader.oldest(), reader.durable())
    };
    let log = open();
    append(&log, 7);
    log.close().unwrap();
    engine.advance(Duration::from_secs(980));
    let log = open();
    append(&log, 5);
    engine.advance(Duration::from_secs(21));
    assert_eq!(log.oldest(), Seq(1));
    log.close().unwrap();
    assert_eq!(oldest_and_last(), (Seq(8), Seq(12)));
    engine.advance(Duration::from_secs(1000));
    let log = open();
    assert_eq!(log.oldest(), Seq(13));
    log.close().unwrap();
    assert_eq!(oldest_and_last(), (Seq(13), Seq(12)));
}

/// A check that finds nothing too old writes nothing.
#[test]
fn an_idle_log_with_an_age_writes_nothing() {
    let (log, disk, engine) = open(|options| {
        options.retention.age = Some(Duration::from_secs(3600));
    });
    append(&log, 5);
    engine.run();
    let before = disk.stats();
    for _ in 0..30 {
        engine.advance(Duration::from_secs(100));
    }
    let after = disk.stats();
    assert_eq!((after.writes, after.syncs), (before.writes, before.syncs));
    engine.advance(Duration::from_secs(3600));
    assert_eq!(log.oldest(), Seq(6));
    log.close().unwrap();
}

#[test]
fn limits_change_while_the_log_is_open() {
    let (log, disk, engine) = open(|options| options.segment_records = Some(10));
    append(&log, 95);
    engine.run();
    assert_eq!((log.oldest(), log.retention().limits()), (Seq(1), Retention::NONE));
    let mut retention = Retention::NONE;
    retention.segments = Some(1);
    let refused = log.retention().set_limits(retention);
    assert!(matches!(
        refused,
        Err(RetentionError::InvalidOption(InvalidOption { option: "retention.segments", .. }))
    ));
    assert_eq!(log.retention().limits(), Retention::NONE);
    retention.segments = Some(3);
    log.retention().set_limits(retention).unwrap();
    append(&log, 1);
    engine.run();
    check_run(&log);
    assert_eq!((log.oldest(), log.retention().limits()), (Seq(71), retention));
    // And no less is kept from here on.
    log.retention().set_limits(Retention::NONE).unwrap();
    append(&log, 100);
    engine.run();
    check_run(&log);
    assert_eq!(log.oldest(), Seq(71));
    retention = Retention::NONE;
    retention.age = Some(Duration::from_secs(10));
    log.retention().set_limits(retention).unwrap();
    append(&log, 4);
    engine.advance(Duration::from_secs(12));
    check_run(&log);
    assert_eq!(log.oldest(), Seq(201));
    log.close().unwrap();
    assert!(matches!(
        log.retention().set_limits(Retention::NONE),
        Err(RetentionError::Log(LogError::Closed))
    ));
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(log.retention().limits(), Retention::NONE);
    log.close().unwrap();
}

/// No call is made: a thread of the process obeys the new limit.
#[test]
fn a_new_limit_is_obeyed_without_calls() {
    let disk = SimDisk::new(1);
    let mut options = fixture::small(&disk);
    options.segment_records = Some(10);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 95);
    let mut retention = Retention::NONE;
    retention.segments = Some(2);
    log.retention().set_limits(retention).unwrap();
    fixture::until("the segments are dropped", || log.oldest() == Seq(81));
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
    assert!(log.storage().metadata().records <= 30);
    log.close().unwrap();
}

/// No call is made: the threads of the process drop the oldest segments.
#[test]
fn ring_recycles_segments_without_calls() {
    let disk = SimDisk::new(1);
    let mut options = fixture::small(&disk);
    options.retention.segments = Some(3);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 1_000);
    fixture::until("three segments are left", || log.storage().metadata().segments <= 3);
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
