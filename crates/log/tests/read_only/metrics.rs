//! The metrics of a reader in another process: how far it has read, how far it lags, and how many
//! callers wait.
//!
//! Guards: a lag of zero of a reader that does not poll, streams that nothing shows, and counts
//! that begin again when the writer does.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::task::{Poll, Waker};

use esker_disk::sim::SimDisk;
use esker_log::{Engine, Log, ReadOnlyLog, ReadOnlyMetrics, Seq, Start};

use crate::fixture::{DIR, append, driven, poll};

fn open(disk: &SimDisk) -> Log {
    Log::builder(DIR).options(driven(disk).0).open().unwrap()
}

fn reader(disk: &SimDisk) -> ReadOnlyLog {
    let builder = ReadOnlyLog::builder(DIR).disk(Arc::new(disk.process()));
    builder.engine(Engine::manual()).open().unwrap()
}

fn lag(metrics: &ReadOnlyMetrics) -> Option<u64> {
    metrics.lag.map(|lag| lag.records)
}

#[test]
fn the_lag_is_what_the_writer_has_and_no_poll_has_seen() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append(&log, 3);
    let reader = reader(&disk);
    let metrics = reader.metrics();
    assert_eq!((metrics.metadata.durable, lag(&metrics)), (Seq(3), Some(0)));
    append(&log, 40);
    let metrics = reader.metrics();
    assert_eq!((metrics.metadata.durable, lag(&metrics)), (Seq(3), Some(40)));
    let bytes = log.storage().metadata().position.0 - reader.position().0;
    assert_eq!(metrics.lag.map(|lag| lag.bytes), Some(bytes));
    assert_eq!((metrics.polls, metrics.scans), (0, 1));
    reader.refresh().unwrap();
    let metrics = reader.metrics();
    assert_eq!((metrics.metadata.durable, lag(&metrics)), (Seq(43), Some(0)));
    assert_eq!((metrics.polls, metrics.scans), (1, 1));

    // The reader has not seen the next writer.
    log.close().unwrap();
    let log = open(&disk);
    append(&log, 1);
    assert_eq!(lag(&reader.metrics()), None);
    reader.refresh().unwrap();
    let metrics = reader.metrics();
    assert_eq!((metrics.metadata.durable, lag(&metrics)), (Seq(44), Some(0)));
    assert_eq!((metrics.polls, metrics.scans), (2, 2));
    reader.close();
    assert_eq!(reader.metrics().metadata.durable, Seq(44));
    log.close().unwrap();
}

#[test]
fn each_stream_shows_its_lag_until_it_is_dropped() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append(&log, 10);
    let reader = reader(&disk);
    assert!(reader.metrics().streams.is_empty());
    let mut stream = reader.stream(Start::After(Seq(4))).unwrap();
    let tip = reader.stream(Start::Tip).unwrap();
    let lags = || {
        let streams = reader.metrics().streams;
        let mut lags: Vec<_> = streams.iter().map(|lag| (lag.after.0, lag.records)).collect();
        lags.sort_unstable();
        lags
    };
    assert_eq!(lags(), [(4, 6), (10, 0)]);
    let before = reader.metrics();
    assert_eq!((before.reads, before.read_bytes), (0, 0));
    while stream.try_next().unwrap().is_some() {}
    assert_eq!(lags(), [(10, 0), (10, 0)]);
    assert!(reader.metrics().streams.iter().all(|lag| lag.bytes == 0));
    let after = reader.metrics();
    assert!(after.reads > 0 && after.read_bytes >= 6 * 4096, "{after:?}");

    // A snapshot of the directory is replaced, and the counts go on.
    log.close().unwrap();
    let log = open(&disk);
    append(&log, 2);
    reader.refresh().unwrap();
    assert_eq!(lags(), [(10, 2), (10, 2)]);
    assert_eq!(reader.metrics().reads, after.reads);
    drop((stream, tip));
    assert!(reader.metrics().streams.is_empty());
    // The call for one record is no stream.
    drop(reader.read_async(1));
    assert!(reader.metrics().streams.is_empty());
    log.close().unwrap();
}

#[test]
fn streams_that_wait_are_counted() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append(&log, 1);
    let reader = reader(&disk);
    let mut stream = reader.stream(Start::Tip).unwrap();
    assert_eq!(reader.metrics().waiting, 0);
    assert!(matches!(poll(&mut stream, Waker::noop()), Poll::Pending));
    assert_eq!(reader.metrics().waiting, 1);
    append(&log, 1);
    reader.refresh().unwrap();
    assert_eq!(reader.metrics().waiting, 0);
    assert!(poll(&mut stream, Waker::noop()).is_ready());
    log.close().unwrap();
}
