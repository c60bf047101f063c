//! Examples that users of other logs know, in the names that things have here.
//!
//! On the real disk, with the threads of the process, as a user would run them.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::fixture::{all, block_on, in_time, payload, payloads, read_from, until};
use esker_log::{
    Append, AppendError, Log, LogError, Options, Position, PriorShutdown, ReadError, Seq, Start,
};

/// Create, write, read back, close.
#[test]
fn write_read_back_and_close() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path().join("log")).unwrap();
    let mut places = Vec::new();
    for text in ["one", "two", "three"] {
        places.push(log.append(text).unwrap().blocking_wait().unwrap());
    }
    let mut stream = log.stream(Start::Oldest).unwrap();
    let mut texts = Vec::new();
    while let Some(batch) = stream.try_next().unwrap() {
        texts.extend(batch.iter().map(|record| String::from_utf8(record.payload.into()).unwrap()));
    }
    assert_eq!(texts, ["one", "two", "three"]);
    assert!(stream.try_next().unwrap().is_none(), "the end of the log");
    // Any position that an append returned can be read, and nothing between.
    for (place, text) in places.iter().zip(texts) {
        assert_eq!(log.read_at(place.position).unwrap().payload(), text.as_bytes());
        let between = Position(place.position.0 + 1);
        assert!(
            matches!(log.read_at(between), Err(ReadError::InvalidPosition { position }) if position == between)
        );
    }
    assert!(matches!(log.read_at(Position(u64::MAX)), Err(ReadError::InvalidPosition { .. })));
    log.close().unwrap();
    assert!(matches!(log.append(b"x"), Err(AppendError::Log(LogError::Closed))));
}

/// A loop of pipelined writes, then one flush; a buffer of 1 MiB, checksums always on.
#[test]
fn pipeline_then_flush() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.buffer_size = 1 << 20;
    let log = Log::builder(dir.path().join("log")).options(options).open().unwrap();
    let mut positions = Vec::new();
    for seq in 1..=5_000 {
        let ticket = log.append(payload(seq)).unwrap();
        assert_eq!(ticket.seq(), Seq(seq));
        positions.push(ticket.position());
    }
    assert!(positions.is_sorted_by(|a, b| a < b), "in order");
    log.barrier().unwrap().blocking_wait().unwrap();
    assert_eq!(log.durable(), Seq(5_000));
    assert!(log.stats().commits < 2_500, "they share commits");
    assert!(all(&log) == payloads(1..=5_000));
    log.close().unwrap();
}

/// No caller flushes or waits.
#[test]
fn staged_records_become_durable_without_a_wait() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path().join("log")).unwrap();
    for seq in 1..=100 {
        drop(log.append(payload(seq)).unwrap());
    }
    until("all are durable", || log.durable() == Seq(100));
    log.close().unwrap();
}

#[test]
fn a_hundred_writers_of_fifty_records() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path().join("log")).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..100u32 {
            let log = &log;
            scope.spawn(move || {
                for n in 0..50u32 {
                    let record = format!("{writer:04}-{n:05}");
                    log.append(&record).unwrap().blocking_wait().unwrap();
                }
            });
        }
    });
    let seen: Vec<_> = all(&log).into_iter().map(|(_, record)| record).collect();
    let different: BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), different.len()), (5_000, 5_000));
    // Each writer's records are in its own order.
    for writer in 0..100 {
        let own =
            seen.iter().filter(|record| record.starts_with(format!("{writer:04}-").as_bytes()));
        assert!(own.is_sorted());
    }
    assert!(log.stats().commits < 4_000, "group commit");
    log.close().unwrap();
}

#[test]
fn reopen_append_a_third_and_read_all_three() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    let log = Log::open(&dir).unwrap();
    log.write(Append::records(&["one", "two"])).unwrap().blocking_wait().unwrap();
    let end = log.storage().metadata().position;
    log.close().unwrap();
    let log = Log::open(&dir).unwrap();
    assert_eq!(
        (log.durable(), log.storage().metadata().position),
        (Seq(2), end),
        "it finds its end"
    );
    let third = log.append("three").unwrap().blocking_wait().unwrap();
    assert_eq!(third.seq, Seq(3));
    assert!(third.position >= end);
    let texts: Vec<_> = all(&log).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, [&b"one"[..], b"two", b"three"]);
    log.close().unwrap();
}

/// One writer in batches, two readers that wait and check every record; close, open, again.
#[test]
fn writer_and_two_checking_readers_across_reopens() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("log");
    let mut options = Options::default();
    options.segment_size = 1 << 20;
    let (batches, size) = (20, 500);
    for round in 0..3 {
        let log = Log::builder(&dir).options(options.clone()).open().unwrap();
        let first = round * batches * size;
        assert_eq!(log.durable().0, first);
        assert_eq!(log.storage().metadata().records, first);
        if round > 0 {
            assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
        }
        let end = first + batches * size;
        let writer = log.clone();
        in_time("a round", move || {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let mut stream = writer.stream(Start::After(Seq(first))).unwrap();
                    std::thread::spawn(move || {
                        let mut next = first + 1;
                        while next <= end {
                            for record in &stream.blocking_next().unwrap() {
                                assert_eq!((record.seq.0, record.prev.0), (next, next - 1));
                                assert_eq!(record.payload, payload(next));
                                next += 1;
                            }
                        }
                    })
                })
                .collect();
            for batch in 0..batches {
                let from = first + batch * size;
                let records: Vec<_> = (from + 1..=from + size).map(payload).collect();
                let records: Vec<_> = records.iter().collect();
                writer.write(Append::records(&records)).unwrap().blocking_wait().unwrap();
            }
            for reader in readers {
                reader.join().unwrap();
            }
        });
        log.close().unwrap();
    }
    let log = Log::builder(&dir).options(options).open().unwrap();
    assert!(read_from(&log, Start::Oldest).unwrap() == payloads(1..=3 * batches * size));
    log.close().unwrap();
}

/// The same handle serves tasks of a runtime and threads.
#[test]
fn tasks_and_threads_share_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path().join("log")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let appended = runtime.block_on(async {
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let log = log.clone();
                tokio::spawn(async move {
                    for _ in 0..20 {
                        log.append_async(b"task").await.unwrap().await.unwrap();
                    }
                })
            })
            .collect();
        let other = log.clone();
        let thread = std::thread::spawn(move || {
            for _ in 0..20 {
                other.append(b"thread").unwrap().blocking_wait().unwrap();
            }
        });
        for task in tasks {
            tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap();
        }
        thread.join().unwrap();
        log.durable()
    });
    assert_eq!(appended, Seq(420));
    block_on(log.wait_durable(420)).unwrap();
    log.close().unwrap();
}
