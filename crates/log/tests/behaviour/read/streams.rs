//! Streams: in order and without gaps, from any place, waiting for what is yet to come or not.
//!
//! Guards: an empty batch while later records exist; a cursor at the tip that does not wait, and
//! one at the oldest record that stops working after a rotation.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use esker_disk::sim::SimDisk;
use esker_log::{Append, Log, LogError, LogStream, ReadError, Seq, Start};
use futures_util::StreamExt;

use crate::fixture::{
    self, DIR, LONG, Wakes, all, append, block_on, in_time, log, payload, payloads, poll,
    read_from, rest, seen, small,
};

#[test]
fn two_records_come_back_as_they_were_appended() {
    let (log, ..) = log();
    log.write(Append::records(&["first", "second"])).unwrap().blocking_wait().unwrap();
    let back = read_from(&log, Start::After(Seq(0))).unwrap();
    assert_eq!(back, [(1, b"first".to_vec()), (2, b"second".to_vec())]);
    log.close().unwrap();
}

#[test]
fn stream_starts_at_any_position() {
    let (log, ..) = log();
    append(&log, 300);
    assert!(log.storage().metadata().segments > 3);
    assert_eq!(read_from(&log, Start::Oldest).unwrap(), payloads(1..=300));
    assert!(read_from(&log, Start::Tip).unwrap().is_empty());
    for seq in (0..=300).step_by(7) {
        assert_eq!(read_from(&log, Start::After(Seq(seq))).unwrap(), payloads(seq + 1..=300));
        let from = read_from(&log, Start::From(Seq(seq))).unwrap();
        assert_eq!(from, payloads(seq.max(1)..=300));
    }
    log.close().unwrap();
}

/// Above the newest there is nothing yet, and nothing before the wanted place comes later.
#[test]
fn stream_from_above_the_newest_record_waits() {
    let (log, ..) = log();
    append(&log, 3);
    let mut from = log.stream(Start::From(Seq(6))).unwrap();
    let mut after = log.stream(Start::After(Seq(6))).unwrap();
    assert!(from.try_next().unwrap().is_none());
    append(&log, 2);
    assert!(from.try_next().unwrap().is_none());
    append(&log, 2);
    assert_eq!(rest(&mut from), payloads(6..=7));
    assert_eq!(rest(&mut after), payloads(7..=7));
    log.close().unwrap();
}

#[test]
fn a_stream_that_caught_up_continues_when_more_comes() {
    let (log, ..) = log();
    let mut stream = log.stream(Start::Oldest).unwrap();
    let mut got = Vec::new();
    for round in 1..=60 {
        assert!(stream.try_next().unwrap().is_none());
        append(&log, round % 4);
        while let Some(batch) = stream.try_next().unwrap() {
            assert!(!batch.is_empty(), "an empty batch is no answer");
            got.extend(seen(&batch));
        }
        assert_eq!(got.len() as u64, log.durable().0);
    }
    assert_eq!(got, all(&log));
    log.close().unwrap();
}

#[test]
fn readers_see_only_durable_records_by_default() {
    let (log, ..) = log();
    append(&log, 2);
    let mut stream = log.stream(Start::Oldest).unwrap();
    assert_eq!(rest(&mut stream), payloads(1..=2));
    let tickets: Vec<_> = (3..=5).map(|seq| log.append(payload(seq)).unwrap()).collect();
    assert!(stream.try_next().unwrap().is_none());
    assert!(matches!(log.read(3), Err(ReadError::NotFound { .. })));
    let tail: Vec<_> = log.component().pending_records().unwrap().iter().flat_map(seen).collect();
    assert_eq!(tail, payloads(3..=5));
    log.barrier().unwrap().blocking_wait().unwrap();
    assert_eq!(rest(&mut stream), payloads(3..=5));
    assert!(log.component().pending_records().unwrap().is_empty());
    drop(tickets);
    log.close().unwrap();
}

#[test]
fn the_tip_gives_the_first_record_after_the_call() {
    let log = Log::builder(DIR).options(small(&SimDisk::new(1))).open().unwrap();
    append(&log, 3);
    let mut tip = log.stream(Start::Tip).unwrap();
    let writer = log.clone();
    let first = in_time("waiting at the tip", move || {
        let reader = std::thread::spawn(move || seen(&tip.blocking_next().unwrap()));
        fixture::until("the reader waits", || writer.stats().waiting == 1);
        append(&writer, 1);
        reader.join().unwrap()
    });
    assert_eq!(first, payloads(4..=4));
    log.close().unwrap();
}

#[test]
fn a_wait_for_the_next_batch_ends_at_its_deadline() {
    let (log, ..) = log();
    append(&log, 1);
    let mut stream = log.stream(Start::Oldest).unwrap();
    assert_eq!(seen(&stream.blocking_next_timeout(LONG).unwrap()), payloads(1..=1));
    let late = stream.blocking_next_timeout(Duration::from_millis(10)).err();
    assert!(matches!(late, Some(ReadError::Timeout)), "{late:?}");
    append(&log, 1);
    assert_eq!(seen(&stream.blocking_next_timeout(LONG).unwrap()), payloads(2..=2));
    log.close().unwrap();
}

#[test]
fn a_task_is_woken_by_the_commit_that_it_waits_for() {
    let (log, ..) = log();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut stream = log.stream(Start::Tip).unwrap();
    assert!(poll(&mut stream, &waker).is_pending());
    let ticket = log.append(payload(1)).unwrap();
    assert_eq!(wakes.count(), 0, "woken for a record that is not durable");
    ticket.blocking_wait().unwrap();
    assert_eq!(wakes.count(), 1);
    let Poll::Ready(Some(Ok(batch))) = poll(&mut stream, &waker) else { panic!("nothing") };
    assert_eq!(seen(&batch), payloads(1..=1));
    assert!(poll(&mut stream, &waker).is_pending());
    log.close().unwrap();
}

/// `LogStream` combinators, and the blocking iterator, end once and for all with the log.
#[test]
fn the_end_of_the_log_ends_a_stream_once() {
    let (log, ..) = log();
    append(&log, 2);
    let mut tasks = log.stream(Start::Oldest).unwrap();
    let mut threads = log.stream(Start::Oldest).unwrap();
    assert!(matches!(threads.blocking_iter().next(), Some(Ok(_))));
    assert!(matches!(block_on(tasks.next()), Some(Ok(_))));
    log.close().unwrap();
    assert!(matches!(block_on(tasks.next()), Some(Err(ReadError::Log(LogError::Closed)))));
    assert!(block_on(tasks.next()).is_none());
    let ends: Vec<_> = threads.blocking_iter().collect();
    assert!(matches!(ends[..], [Err(ReadError::Log(LogError::Closed))]), "{ends:?}");
}

#[test]
fn a_batch_can_be_read_as_often_as_wanted_and_keeps_its_bytes() {
    let (log, ..) = log();
    append(&log, 3);
    let mut stream = log.stream(Start::From(Seq(2))).unwrap();
    let batch = stream.try_next().unwrap().unwrap();
    let again = batch.clone();
    // Segments and buffers turn over many times meanwhile.
    append(&log, 400);
    drop(stream);
    for _ in 0..3 {
        assert_eq!(seen(&batch), payloads(2..=3));
        assert_eq!(seen(&again), payloads(2..=3));
    }
    let record = batch.iter().next().unwrap();
    assert_eq!((record.seq, record.prev), (Seq(2), Seq(1)));
    assert_eq!(log.read_at(record.position).unwrap().payload(), payload(2));
    log.close().unwrap();
    assert_eq!(seen(&batch), payloads(2..=3));
}

/// Two readers that wait, and one that comes late, see what one writer appends, to the last byte.
#[test]
fn waiting_readers_follow_a_writer() {
    let log = Log::builder(DIR).options(small(&SimDisk::new(1))).open().unwrap();
    let writer = log.clone();
    in_time("following", move || {
        let follow = |mut stream: LogStream| {
            std::thread::spawn(move || {
                let mut next = 1;
                while next <= 2_000 {
                    for record in &stream.blocking_next().unwrap() {
                        assert_eq!((record.seq.0, record.payload), (next, &payload(next)[..]));
                        next += 1;
                    }
                }
            })
        };
        let early = [Start::Oldest, Start::Tip].map(|start| follow(writer.stream(start).unwrap()));
        for seq in 1..=2_000 {
            drop(writer.append(payload(seq)).unwrap());
        }
        let late = follow(writer.stream(Start::Oldest).unwrap());
        for reader in early.into_iter().chain([late]) {
            reader.join().unwrap();
        }
    });
    log.close().unwrap();
}
