//! A future of a stream dropped each time it waits, for the disk or for a commit: nothing is lost
//! and nothing comes twice.
//!
//! The state of a read is in the stream, and not in the future.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::task::{Context, Poll, Waker};

use esker_disk::sim::SimDisk;
use esker_log::{Batch, Log, LogStream, Start};
use futures_util::StreamExt;

use crate::fixture::{self, DIR, append, follows, in_time, poll_once, small};

const FAR: u64 = 300;
const RECORDS: u64 = 400;

/// A log of records that are in files alone, and of some that are in memory, too.
fn log() -> Log {
    let mut options = small(&SimDisk::new(1));
    options.tail_cache = 64 << 10;
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, FAR);
    log
}

/// The next batch by a new future for each poll; how many of them were dropped while they waited.
fn next(stream: &mut LogStream, mut pending: impl FnMut()) -> (Batch, usize) {
    let mut dropped = 0;
    loop {
        match poll_once(&mut stream.next()) {
            Poll::Ready(batch) => return (batch.unwrap().unwrap(), dropped),
            Poll::Pending => {
                dropped += 1;
                pending();
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn a_future_for_each_poll_loses_nothing() {
    let log = log();
    let reader = log.clone();
    in_time("reading with many futures", move || {
        let mut stream = reader.stream(Start::Oldest).unwrap();
        let (mut last, mut cold, mut warm) = (0, 0, 0);
        while last < FAR {
            let (batch, dropped) = next(&mut stream, || {});
            last = follows(&batch, last);
            cold += dropped;
        }
        while last < RECORDS {
            let (batch, dropped) = next(&mut stream, || append(&reader, 1));
            last = follows(&batch, last);
            warm += dropped;
        }
        assert!(cold > 0, "no future ever waited for the disk");
        assert!(warm > 50, "{warm}");
        drop(stream);
        assert_eq!(reader.stats().waiting, 0);
    });
    log.close().unwrap();
}

/// The stream itself moves to another task each time, with a waker of its own.
#[test]
fn a_stream_may_wait_in_many_tasks() {
    let log = log();
    let mut streams: Vec<_> = (0..8).map(|_| (log.stream(Start::Oldest).unwrap(), 0)).collect();
    let reader = log.clone();
    in_time("reading in many tasks", move || {
        while streams.iter().any(|(_, last)| *last < RECORDS) {
            for (stream, last) in &mut streams {
                let wakes = std::sync::Arc::new(fixture::Wakes::default());
                let waker = Waker::from(wakes);
                let mut next = stream.next();
                let next = std::pin::Pin::new(&mut next);
                match std::future::Future::poll(next, &mut Context::from_waker(&waker)) {
                    Poll::Ready(batch) => *last = follows(&batch.unwrap().unwrap(), *last),
                    Poll::Pending if *last >= FAR && reader.durable().0 < RECORDS => {
                        append(&reader, 1);
                    }
                    Poll::Pending => std::thread::yield_now(),
                }
            }
        }
        drop(streams);
        assert_eq!(reader.stats().waiting, 0);
    });
    log.close().unwrap();
}
