//! A reader below the trim point gets `Trimmed`, with the number to continue from, and never gets a
//! wrong record instead.
//!
//! Guards: an oldest record that cannot be read any more once the first segment was recycled.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use esker_disk::sim::SimDisk;
use esker_log::{Engine, Error, Log, ReadError, Seq, Start, Trimmed};

use crate::fixture::{DIR, append, driven, log, payload, payloads, read_from, seen};

/// A log whose ring has turned.
fn turned() -> (Log, Engine) {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.retention.segments = Some(3);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 600);
    engine.run();
    assert!(log.oldest() > Seq(300), "{}", log.oldest());
    (log, engine)
}

fn oldest_reported<T>(outcome: esker_log::Result<T>) -> u64 {
    match outcome.err() {
        Some(Error::Trimmed(Trimmed { oldest })) => oldest.0,
        other => panic!("not trimmed: {other:?}"),
    }
}

#[test]
fn the_oldest_record_can_be_read_at_any_time() {
    let (log, engine) = turned();
    for _ in 0..30 {
        append(&log, 10);
        engine.run();
        let oldest = log.oldest().0;
        let kept = read_from(&log, Start::Oldest).unwrap();
        assert_eq!(kept, payloads(oldest..=log.durable().0));
        assert_eq!(log.read(oldest).unwrap().payload(), payload(oldest));
        assert_eq!(read_from(&log, Start::From(Seq(oldest))).unwrap(), kept);
        assert_eq!(read_from(&log, Start::After(Seq(oldest - 1))).unwrap(), kept);
    }
    log.close().unwrap();
}

#[test]
fn every_way_of_reading_dropped_records_returns_trimmed() {
    let (log, _) = turned();
    let oldest = log.oldest().0;
    for below in [1, oldest / 2, oldest - 1] {
        assert_eq!(oldest_reported(log.read(below).map_err(Into::into)), oldest);
        assert_eq!(
            oldest_reported(log.stream(Start::From(Seq(below))).map_err(Into::into)),
            oldest
        );
        assert_eq!(
            oldest_reported(log.stream(Start::After(Seq(below - 1))).map_err(Into::into)),
            oldest
        );
    }
    assert_eq!(oldest_reported(log.read_at(esker_log::Position(5000)).map_err(Into::into)), oldest);
    assert!(matches!(log.read(0), Err(ReadError::NotFound { .. })));
    log.close().unwrap();
}

#[test]
fn slow_reader_gets_trimmed_and_continues_from_the_oldest() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.retention.segments = Some(3);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 20);
    let mut not_begun = log.stream(Start::From(Seq(10))).unwrap();
    let mut begun = log.stream(Start::Oldest).unwrap();
    assert_eq!(seen(&begun.try_next().unwrap().unwrap())[0], (1, payload(1)));
    append(&log, 900);
    engine.run();
    let oldest = log.oldest().0;
    assert_eq!(oldest_reported(not_begun.try_next().map_err(Into::into)), oldest);
    assert_eq!(oldest_reported(begun.try_next().map_err(Into::into)), oldest);
    let mut again = log.stream(Start::Oldest).unwrap();
    assert_eq!(seen(&again.try_next().unwrap().unwrap())[0], (oldest, payload(oldest)));
    log.close().unwrap();
}

/// Truncation goes as far as to a single record; the rest of its segment is still there.
#[test]
fn reader_below_a_truncation_gets_trimmed() {
    let (log, ..) = log();
    append(&log, 40);
    let mut begun = log.stream(Start::Oldest).unwrap();
    begun.try_next().unwrap().unwrap();
    let mut far = log.stream(Start::From(Seq(30))).unwrap();
    log.retention().truncate_before(25).unwrap();
    assert_eq!(oldest_reported(begun.try_next().map_err(Into::into)), 25);
    assert_eq!(seen(&far.try_next().unwrap().unwrap())[0].0, 30);
    assert_eq!(oldest_reported(log.read(24).map_err(Into::into)), 25);
    assert_eq!(oldest_reported(log.stream(Start::From(Seq(24))).map_err(Into::into)), 25);
    assert_eq!(read_from(&log, Start::From(Seq(25))).unwrap(), payloads(25..=40));
    log.close().unwrap();
}

/// A batch in the hand stays what it is, whatever leaves the log.
#[test]
fn recycling_leaves_kept_batches_unchanged() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.retention.segments = Some(2);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 10);
    let mut stream = log.stream(Start::Oldest).unwrap();
    let mut held = Vec::new();
    for round in 0..40 {
        append(&log, 10);
        engine.run();
        match stream.try_next() {
            Ok(Some(batch)) => held.push(batch),
            Ok(None) => {}
            Err(ReadError::Trimmed(_)) => stream = log.stream(Start::Oldest).unwrap(),
            Err(error) => panic!("round {round}: {error}"),
        }
    }
    assert!(held.len() > 20);
    for batch in &held {
        for record in batch {
            assert_eq!(record.payload, payload(record.seq.0));
        }
    }
    log.close().unwrap();
}
