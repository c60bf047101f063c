//! A stream lags by what it has not delivered, until it is dropped.
#![allow(clippy::unwrap_used)]

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::{Append, Log, Seq, Start, StreamLag};

use crate::fixture::{DIR, Opens, append, block_on, driven, follows, log, poll_once, small};

fn lags(log: &Log) -> Vec<StreamLag> {
    log.metrics().streams
}

/// The lag of the only stream, in records and bytes.
fn lag(log: &Log) -> (u64, u64) {
    let lags = lags(log);
    assert_eq!(lags.len(), 1, "{lags:?}");
    (lags[0].records, lags[0].bytes)
}

/// Bytes of all durable commit units, which begin after the header of the first segment.
fn stored(log: &Log) -> u64 {
    log.storage().metadata().position.0 - 4096
}

#[test]
fn a_stream_lags_by_what_it_has_not_delivered() {
    let (log, _, _) = log();
    append(&log, 10);
    let mut stream = log.stream(Start::Oldest).unwrap();
    assert_eq!(lag(&log), (10, stored(&log)));
    let mut last = 0;
    while let Some(batch) = stream.try_next().unwrap() {
        last = follows(&batch, last);
        assert_eq!(lags(&log)[0].after, Seq(last));
        assert_eq!(lag(&log).0, 10 - last);
    }
    assert_eq!(lag(&log), (0, 0));
    let before = stored(&log);
    append(&log, 5);
    assert_eq!(lag(&log), (5, stored(&log) - before));
    drop(stream);
    assert!(lags(&log).is_empty());
    log.close().unwrap();
}

#[test]
fn each_stream_has_a_lag_of_its_own() {
    let (log, _, _) = log();
    append(&log, 10);
    let tip = log.stream(Start::Tip).unwrap();
    let after = log.stream(Start::After(Seq(4))).unwrap();
    let from = log.stream(Start::From(Seq(4))).unwrap();
    let future = log.stream(Start::After(Seq(50))).unwrap();
    let sorted = |log: &Log| {
        let mut records: Vec<_> = lags(log).iter().map(|lag| lag.records).collect();
        records.sort_unstable();
        records
    };
    assert_eq!(sorted(&log), [0, 0, 6, 7]);
    append(&log, 2);
    assert_eq!(sorted(&log), [0, 2, 8, 9]);
    drop((from, future));
    assert_eq!(sorted(&log), [2, 8]);
    drop((tip, after));
    assert!(lags(&log).is_empty());
    log.close().unwrap();
}

/// Numbers of the caller's own have gaps, and the lag counts numbers.
#[test]
fn the_lag_counts_numbers() {
    let (log, _, _) = log();
    let mut prev = 0;
    for seq in [100, 250, 400] {
        log.write(Append::numbered(Seq(prev), &[(Seq(seq), b"x")]))
            .unwrap()
            .blocking_wait()
            .unwrap();
        prev = seq;
    }
    let _stream = log.stream(Start::After(Seq(100))).unwrap();
    assert_eq!(lag(&log).0, 300);
    log.close().unwrap();
}

/// Records that were accepted and are not durable cannot be delivered by any stream.
#[test]
fn records_that_are_not_durable_are_no_lag() {
    let (log, _, engine) = log();
    append(&log, 1);
    let stream = log.stream(Start::Tip).unwrap();
    log.append(b"x").unwrap().detach();
    assert_eq!((log.metrics().stats.pending, lag(&log)), (1, (0, 0)));
    log.barrier().unwrap().blocking_wait().unwrap();
    assert_eq!(lag(&log).0, 1);
    engine.run();
    drop(stream);
    log.close().unwrap();
}

/// A stream below the trim point still lags until its reader drops it.
#[test]
fn a_stream_that_lags_past_the_retention_is_shown() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.retention.segments = Some(2);
    let log = Log::builder(DIR).options(options).open().unwrap();
    let mut stream = log.stream(Start::Oldest).unwrap();
    append(&log, 400);
    engine.run();
    assert!(matches!(stream.try_next(), Err(esker_log::ReadError::Trimmed(_))));
    assert_eq!(lag(&log).0, 400);
    drop(stream);
    assert!(lags(&log).is_empty());
    log.close().unwrap();
}

/// Reading single records is no stream.
#[test]
fn only_streams_are_shown() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    append(&log, 300);
    let gate = Gate::new();
    let opens = Opens(disk.clone(), gate.clone());
    disk.inject(Fault::on(Op::Read, Effect::Block(gate)).path(".seg"));
    let mut read = Box::pin(log.read_async(Seq(1)));
    assert!(poll_once(&mut read).is_pending());
    assert!(lags(&log).is_empty());
    drop(opens);
    assert_eq!(block_on(read).unwrap().record().seq, Seq(1));
    assert!(lags(&log).is_empty());
    log.close().unwrap();
}

/// The table has as many places as there ever were streams at a time.
#[test]
fn ten_thousand_streams_leave_nothing_behind() {
    let (log, _, _) = log();
    append(&log, 3);
    for _ in 0..10 {
        let streams: Vec<_> = (0..1000).map(|_| log.stream(Start::Oldest).unwrap()).collect();
        let lags = lags(&log);
        assert!(lags.len() == 1000 && lags.iter().all(|lag| lag.records == 3));
        drop(streams);
        assert!(log.metrics().streams.is_empty());
    }
    log.close().unwrap();
}
