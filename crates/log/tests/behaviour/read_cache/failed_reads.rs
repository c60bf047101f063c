//! Bytes far after the tip that cannot be read, or are not what they were: a stream gives
//! everything before them, and then says what is wrong, whether it waits as a thread or as a task.
//!
//! Guards: a failed read that is cached for others; an error that takes the valid units along that
//! were read with it.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::path::PathBuf;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_log::{Error, Log, LogStream, Position, Start};
use futures_util::StreamExt;

use crate::fixture::{self, DIR, append, append_many, block_on, follows, in_time, is_eio, small};

const RECORDS: u64 = 600;
const BLOCK: u64 = 4096;

type Way = fn(LogStream) -> (u64, Option<Error>);

/// Reads up to the end or an error, as a thread.
fn blocking(mut stream: LogStream) -> (u64, Option<Error>) {
    let mut last = 0;
    while last < RECORDS {
        match stream.blocking_next() {
            Ok(batch) => last = follows(&batch, last),
            Err(error) => return (last, Some(error.into())),
        }
    }
    (last, None)
}

/// The same as a task.
fn waiting(mut stream: LogStream) -> (u64, Option<Error>) {
    let mut last = 0;
    while last < RECORDS {
        match block_on(stream.next()).unwrap() {
            Ok(batch) => last = follows(&batch, last),
            Err(error) => return (last, Some(error.into())),
        }
    }
    (last, None)
}

const WAYS: [Way; 2] = [blocking, waiting];

/// Reads a stream from the oldest record on, in this way.
fn read(log: &Log, way: Way) -> (u64, Option<Error>) {
    let stream = log.stream(Start::Oldest).unwrap();
    in_time("reading", move || way(stream))
}

/// A log of one segment, all of it in one piece, with a lonely unit in the middle: its number, and
/// the byte in the file where its record begins.
fn of_one_piece() -> (Log, SimDisk, PathBuf, u64, u64) {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    options.segment_size = 4 << 20;
    let log = Log::builder(DIR).options(options).open().unwrap();
    append_many(&log, RECORDS / 2);
    let ticket = log.append(fixture::payload(RECORDS / 2 + 1)).unwrap();
    let Position(at) = ticket.blocking_wait().unwrap().position;
    append_many(&log, RECORDS / 2 - 1);
    assert_eq!(log.storage().metadata().segments, 1);
    let files = disk.files(DIR.as_ref()).unwrap();
    let oldest = files.into_iter().find(|name| name.ends_with(".seg")).unwrap();
    (log, disk, PathBuf::from(DIR).join(oldest), RECORDS / 2 + 1, at)
}

#[test]
fn corrupted_unit_is_reported_after_all_valid_ones() {
    let (log, disk, file, bad, at) = of_one_piece();
    disk.flip_bit(&file, (at + 40) * 8).unwrap();
    let mut reported = Vec::new();
    for way in WAYS.into_iter().chain(WAYS) {
        let (last, error) = read(&log, way);
        assert_eq!(last, bad - 1);
        assert!(matches!(error, Some(Error::Corrupted(_))), "{error:?}");
        reported.push(error.unwrap().to_string());
    }
    assert!(reported.iter().all(|error| *error == reported[0]), "{reported:?}");
    disk.flip_bit(&file, (at + 40) * 8).unwrap();
    for way in WAYS {
        assert!(matches!(read(&log, way), (RECORDS, None)));
    }
    log.close().unwrap();
}

#[test]
fn unreadable_sector_is_reported_after_all_readable_ones() {
    let (log, disk, file, bad, at) = of_one_piece();
    disk.make_unreadable(&file, at / BLOCK * BLOCK).unwrap();
    for way in WAYS.into_iter().chain(WAYS) {
        let (last, error) = read(&log, way);
        assert_eq!(last, bad - 1);
        assert!(error.as_ref().is_some_and(is_eio), "{error:?}");
    }
    log.close().unwrap();
}

/// And once the disk is well again, nothing is left of the failure.
#[test]
fn failed_read_is_reported_and_not_cached() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    append(&log, RECORDS);
    let files = disk.files(DIR.as_ref()).unwrap();
    let third = files.iter().filter(|name| name.ends_with(".seg")).nth(2).unwrap();
    disk.inject(Fault::on(Op::Read, Effect::Io).path(third));
    for way in WAYS.into_iter().chain(WAYS) {
        let (last, error) = read(&log, way);
        // A lonely commit takes one block, a segment holds fifteen and its header.
        assert_eq!(last, 30);
        assert!(error.as_ref().is_some_and(is_eio), "{error:?}");
    }
    disk.clear_faults();
    for way in WAYS {
        assert!(matches!(read(&log, way), (RECORDS, None)));
    }
    log.close().unwrap();
}
