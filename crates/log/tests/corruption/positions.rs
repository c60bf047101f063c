//! Positions at which no record starts.
//!
//! Guards: a caller's number taken for the place of a record, so that bytes from the middle of one
//! come back as another, or the log's end moves. Where a log ends it finds out by itself.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_log::{Engine, OnCorruption, Position, ReadError, ReadOnlyLog, Start};

use crate::corruption_kit::DIR;
use crate::corruption_kit::repairs::{self, continues};
use crate::corruption_kit::sample::{self, options};

#[test]
fn positions_without_a_record_are_refused() {
    for sample in [sample::closed(), sample::killed(), sample::quarantined()] {
        let disk = sample.disk.fork(1);
        let log = repairs::open(&disk, OnCorruption::Fail).unwrap();
        let mut starts = Vec::new();
        let mut stream = log.stream(Start::Oldest).unwrap();
        loop {
            match stream.try_next() {
                Ok(Some(batch)) => {
                    starts.extend(batch.iter().map(|record| (record.position, record.seq)));
                }
                Ok(None) => break,
                Err(ReadError::Quarantined(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        let before = disk.fingerprint();
        let end = log.storage().metadata().position.0;
        for (at, seq) in &starts {
            assert_eq!(log.read_at(*at).unwrap().record().seq, *seq);
            for near in [at.0 - 8, at.0 - 1, at.0 + 1, at.0 + 8, at.0 + 16] {
                refused(&log.read_at(Position(near)), near, &starts);
            }
        }
        for outside in [0, 1, 4095, 4096, end - 1, end, end + 1, end + 4096, u64::MAX] {
            refused(&log.read_at(Position(outside)), outside, &starts);
        }
        assert_eq!(disk.fingerprint(), before, "{}", sample.name);
        drop(log);
        continues(&sample, disk, sample.items.clone()).unwrap();
    }
}

fn refused<T: std::fmt::Debug>(
    outcome: &Result<T, ReadError>,
    at: u64,
    starts: &[(Position, esker_log::Seq)],
) {
    let is_start = starts.iter().any(|(start, _)| start.0 == at);
    match outcome {
        Ok(_) if is_start => {}
        // Below the first record there is a header, or nothing any more; in a gap, a gap.
        Err(
            ReadError::InvalidPosition { .. } | ReadError::Trimmed(_) | ReadError::Quarantined(_),
        ) => {}
        other => panic!("position {at}: {other:?}"),
    }
}

#[test]
fn end_of_the_log_is_found_at_open() {
    // Append two, reopen, append a third, read all three.
    let disk = esker_disk::sim::SimDisk::new(1);
    let engine = Engine::manual();
    let log = esker_log::Log::builder(DIR).options(options(&disk, &engine)).open().unwrap();
    let first = log.append(b"one").unwrap().blocking_wait().unwrap();
    log.append(b"two").unwrap().blocking_wait().unwrap();
    let end = log.storage().metadata().position;
    log.close().unwrap();

    let log = esker_log::Log::builder(DIR).options(options(&disk, &engine)).open().unwrap();
    assert_eq!(log.storage().metadata().position, end);
    log.append(b"three").unwrap().blocking_wait().unwrap();
    for (seq, payload) in [(1, "one"), (2, "two"), (3, "three")] {
        assert_eq!(&*log.read(seq).unwrap(), payload.as_bytes());
    }
    assert_eq!(&*log.read_at(first.position).unwrap(), b"one");
    let reader = ReadOnlyLog::builder(DIR).options(options(&disk, &engine)).open().unwrap();
    assert_eq!(reader.durable().0, 3);
}
