//! A stream says how far it came, and another one continues there, by number or by position.
//!
//! Guards: a number that is not the last of its batch, or is one that the caller skipped; a stream
//! from a position that begins with another record.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use esker_disk::sim::SimDisk;
use esker_log::{
    Engine, Error, Log, LogStream, Position, PriorShutdown, ReadError, ReadOnlyLog, Result, Seq,
    Start,
};

use crate::fixture::{self, DIR, append, append_many, driven, payloads, read_from, rest, seen};

fn read_only(disk: &SimDisk) -> ReadOnlyLog {
    let reader = ReadOnlyLog::builder(DIR).disk(Arc::new(disk.clone())).engine(Engine::manual());
    reader.open().unwrap()
}

/// Units of one record and of a hundred, in several segments, in memory and in files.
fn mixed() -> (Log, SimDisk) {
    let (log, disk, _) = fixture::log();
    append(&log, 30);
    append_many(&log, 500);
    append(&log, 3);
    (log, disk)
}

/// Takes a stream apart after each batch; the next continues after what `last` says.
fn check_resumed(stream: impl Fn(Start) -> LogStream, last: u64) {
    for from in [1, 2, 29, 30, 31, 77, 131, 132, last] {
        let (mut start, mut all) = (Start::From(Seq(from)), Vec::new());
        loop {
            let mut stream = stream(start);
            assert_eq!(stream.last(), None);
            let Some(batch) = stream.try_next().unwrap() else { break };
            assert_eq!(batch.last(), batch.iter().last().map(|record| record.seq));
            assert_eq!(stream.last(), batch.last());
            all.extend(seen(&batch));
            start = Start::After(stream.last().unwrap());
        }
        assert!(all == payloads(from..=last), "from {from}");
    }
    let mut stream = stream(Start::Oldest);
    assert_eq!(rest(&mut stream).len() as u64, last);
    // At the end there is nothing more, and it stays.
    assert_eq!((stream.try_next().unwrap().map(drop), stream.last()), (None, Some(Seq(last))));
}

#[test]
fn a_stream_continues_after_the_last_that_another_gave() {
    let (log, disk) = mixed();
    check_resumed(|start| log.stream(start).unwrap(), 533);
    check_resumed(|start| read_only(&disk).stream(start).unwrap(), 533);
    log.close().unwrap();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    check_resumed(|start| log.stream(start).unwrap(), 533);
    log.close().unwrap();
}

/// Records that are accepted are not in units yet.
#[test]
fn the_last_of_a_batch_without_units_is_known() {
    let (log, ..) = fixture::log();
    for count in 1..=40 {
        log.append(fixture::payload(count)).unwrap().detach();
        let tail = log.component().pending_records().unwrap();
        let last = tail.iter().filter_map(esker_log::Batch::last).max();
        assert_eq!(last, Some(log.accepted()));
    }
    log.close().unwrap();
}

fn check_positions(
    stream: impl Fn(Start) -> Result<LogStream>,
    positions: &[(u64, Position)],
    last: u64,
) {
    for (seq, position) in positions {
        let all = rest(&mut stream(Start::Position(*position)).unwrap());
        assert!(all == payloads(*seq..=last), "from record {seq} at {position}");
        for wrong in [position.0 + 1, position.0 + 8] {
            let refused = stream(Start::Position(Position(wrong))).map(drop);
            assert!(matches!(refused, Err(Error::InvalidPosition { .. })), "{wrong}: {refused:?}");
        }
    }
}

#[test]
fn a_stream_begins_with_the_record_at_a_position() {
    let (log, disk) = mixed();
    let of = |seq: u64| (seq, log.read(seq).unwrap().record().position);
    let positions = [1, 2, 30, 31, 99, 130, 131, 300, 533].map(of);
    check_positions(|start| log.stream(start).map_err(Into::into), &positions, 533);
    let reader = read_only(&disk);
    check_positions(|start| reader.stream(start).map_err(Into::into), &positions, 533);
    for (seq, position) in positions {
        assert_eq!(reader.read_at(position).unwrap().record().seq, Seq(seq));
    }
    let end = reader.position();
    assert!(matches!(reader.read_at(end), Err(ReadError::InvalidPosition { .. })));
    log.retention().truncate_before(Seq(31)).unwrap();
    let dropped = log.stream(Start::Position(positions[0].1)).map(drop);
    let is_gone = matches!(dropped, Err(ReadError::Trimmed(_) | ReadError::InvalidPosition { .. }));
    assert!(is_gone, "{dropped:?}");
    check_positions(|start| log.stream(start).map_err(Into::into), &positions[3..], 533);
    log.close().unwrap();
}

/// Recovery copies the last records to another segment. A stream that began at a position
/// continues by number.
#[test]
fn a_stream_from_a_position_outlives_a_crash_of_the_writer() {
    let (log, disk, engine) = fixture::log();
    append(&log, 20);
    let reader = read_only(&disk);
    let position = reader.read(Seq(5)).unwrap().record().position;
    let mut stream = reader.stream(Start::Position(position)).unwrap();
    engine.stop();
    drop(log);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Unclean);
    append(&log, 2);
    reader.refresh().unwrap();
    assert!(rest(&mut stream) == payloads(5..=22));
    assert!(read_from(&log, Start::From(Seq(5))).unwrap() == payloads(5..=22));
    log.close().unwrap();
}
