//! Waiting for what another process writes: every commit ends the wait, and so do a look that fails
//! and the end of the reader; a wait that is given up loses nothing.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_log::{
    Batch, Engine, Log, LogError, LogStream, OpenError, ReadError, ReadOnlyLog, Result, Start,
};
use futures_util::{Stream, StreamExt};

use crate::fixture::{
    self, DIR, Wakes, append, block_on, driven, follows, in_time, payload, poll_once, small, until,
};

const SHORT: Duration = Duration::from_millis(5);

/// A log with the threads of the process, and a reader beside it with its own.
fn both(disk: &SimDisk) -> (Log, ReadOnlyLog) {
    let log = Log::builder(DIR).options(small(disk)).open().unwrap();
    (log, ReadOnlyLog::builder(DIR).options(small(disk)).open().unwrap())
}

fn waiting(stream: &mut LogStream) -> Result<Batch, ReadError> {
    block_on(stream.next()).unwrap()
}

fn poll(stream: &mut LogStream, waker: &Waker) -> Poll<Option<Result<Batch, ReadError>>> {
    std::pin::Pin::new(stream).poll_next(&mut Context::from_waker(waker))
}

#[test]
fn each_commit_wakes_every_waiting_reader() {
    let (log, reader) = both(&SimDisk::new(1));
    let (sender, receiver) = sync_channel(0);
    for next in [LogStream::blocking_next, waiting] {
        let (sender, mut stream) = (sender.clone(), reader.stream(Start::Tip).unwrap());
        std::thread::spawn(move || {
            let mut last = 0;
            while last < 60 {
                last = follows(&next(&mut stream).unwrap(), last);
                sender.send(last).unwrap();
            }
        });
    }
    // Nothing more is appended before both have had this one.
    for seq in 1..=60 {
        append(&log, 1);
        for _ in 0..2 {
            assert_eq!(receiver.recv_timeout(fixture::LONG), Ok(seq));
        }
    }
    log.close().unwrap();
}

/// Guards: a task was woken under the lock of polls, which refreshing takes.
#[test]
fn a_waker_may_refresh_the_reader() {
    struct Refreshes(ReadOnlyLog, SyncSender<bool>);
    impl Wake for Refreshes {
        fn wake(self: Arc<Self>) {
            let _ = self.1.try_send(self.0.refresh().is_ok());
        }
    }
    let (log, reader) = both(&SimDisk::new(1));
    let (sender, receiver) = sync_channel(1);
    let waker = Waker::from(Arc::new(Refreshes(reader.clone(), sender)));
    let mut stream = reader.stream(Start::Tip).unwrap();
    assert!(poll(&mut stream, &waker).is_pending());
    append(&log, 1);
    assert_eq!(receiver.recv_timeout(fixture::LONG), Ok(true));
    log.close().unwrap();
}

/// Bug: a stream from the tip began with what the reader had not looked at yet.
#[test]
fn the_tip_is_what_is_durable_at_the_call() {
    let (log, reader) = both(&SimDisk::new(1));
    append(&log, 2);
    let mut stream = reader.stream(Start::Tip).unwrap();
    append(&log, 1);
    assert_eq!(follows(&stream.blocking_next_timeout(fixture::LONG).unwrap(), 2), 3);
    log.close().unwrap();
}

#[test]
fn a_wait_has_an_end() {
    let (log, reader) = both(&SimDisk::new(1));
    let mut stream = reader.stream(Start::Tip).unwrap();
    for seq in 1..=3 {
        let end = stream.blocking_next_timeout(SHORT).err();
        assert!(matches!(end, Some(ReadError::Timeout)), "{end:?}");
        append(&log, 1);
        assert_eq!(follows(&stream.blocking_next_timeout(fixture::LONG).unwrap(), seq - 1), seq);
    }
    log.close().unwrap();
}

#[test]
fn one_engine_thread_serves_waiting_readers() {
    let disk = SimDisk::new(1);
    let (options, _) = driven(&disk);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let reader = ReadOnlyLog::builder(DIR).options(options).open().unwrap();
    let mut stream = reader.stream(Start::Tip).unwrap();
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut last = 0;
    for _ in 0..10 {
        assert!(poll(&mut stream, &waker).is_pending());
        append(&log, 3);
        let before = wakes.count();
        reader.refresh().unwrap();
        assert_eq!(wakes.count(), before + 1, "looking again wakes");
        last = follows(&fixture::ready(poll(&mut stream, &waker)), last);
        append(&log, 3);
        last = follows(&stream.blocking_next_timeout(fixture::LONG).unwrap(), last);
        assert_eq!(last, log.durable().0);
        let end = stream.blocking_next_timeout(SHORT).err();
        assert!(matches!(end, Some(ReadError::Timeout)), "{end:?}");
    }
    log.close().unwrap();
}

#[test]
fn closing_the_reader_ends_every_wait() {
    let (log, reader) = both(&SimDisk::new(1));
    append(&log, 5);
    reader.refresh().unwrap();
    let mut caught_up = reader.stream(Start::Oldest).unwrap();
    assert_eq!(follows(&caught_up.blocking_next().unwrap(), 0), 5);
    let (begun, begins) = sync_channel(0);
    let threads: Vec<_> = [LogStream::blocking_next, waiting]
        .into_iter()
        .map(|next| {
            let (begun, mut stream) = (begun.clone(), reader.stream(Start::Tip).unwrap());
            std::thread::spawn(move || {
                begun.send(()).unwrap();
                next(&mut stream).map(|batch| batch.stored_bytes())
            })
        })
        .collect();
    for _ in 0..2 {
        begins.recv_timeout(fixture::LONG).unwrap();
    }
    // Both are about to wait; a thread that finds the reader closed needs no notification.
    std::thread::sleep(Duration::from_millis(200));
    reader.clone().close();
    for thread in threads {
        let end = in_time("a wait", move || thread.join().unwrap());
        assert!(matches!(end, Err(ReadError::Log(LogError::Closed))), "{end:?}");
    }
    for end in [
        caught_up.try_next().map(drop),
        caught_up.blocking_next().map(drop),
        reader.refresh().map_err(|error| match error {
            OpenError::Log(error) => error.into(),
            error => panic!("{error:?}"),
        }),
        reader.stream(Start::Tip).map(drop),
    ] {
        assert!(matches!(end, Err(ReadError::Log(LogError::Closed))), "{end:?}");
    }
    let end = block_on(caught_up.next());
    assert!(matches!(end, Some(Err(ReadError::Log(LogError::Closed)))), "{end:?}");
    assert!(block_on(caught_up.next()).is_none());
    log.close().unwrap();
}

/// The writer begins another session, so that everything has to be looked at, and nothing can be.
#[test]
fn failed_poll_is_reported_and_retried() {
    for next in [LogStream::blocking_next, waiting] {
        let disk = SimDisk::new(1);
        let (log, reader) = both(&disk);
        append(&log, 5);
        reader.refresh().unwrap();
        let mut stream = reader.stream(Start::Oldest).unwrap();
        assert_eq!(follows(&stream.blocking_next().unwrap(), 0), 5);
        log.close().unwrap();
        let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
        append(&log, 5);
        disk.inject(Fault::on(Op::List, Effect::Io));
        let (error, mut stream) = in_time("a wait over a disk that fails", move || {
            let error = next(&mut stream).err();
            (error, stream)
        });
        assert!(error.as_ref().is_some_and(fixture::is_eio), "{error:?}");
        disk.clear_faults();
        assert_eq!(follows(&stream.blocking_next().unwrap(), 5), 10);
        log.close().unwrap();
    }
}

/// With a future for each poll, lagging, where the disk is waited for, and at the tip, where the
/// writer is.
#[test]
fn a_future_for_each_poll_loses_nothing() {
    const RECORDS: u64 = 600;
    let disk = SimDisk::new(1);
    let (log, reader) = both(&disk);
    append(&log, RECORDS / 2);
    reader.refresh().unwrap();
    let dropped = in_time("reading with many futures", move || {
        let writer = std::thread::spawn(move || {
            append(&log, RECORDS / 2);
            log.close().unwrap();
        });
        let mut stream = reader.stream(Start::Oldest).unwrap();
        let (mut last, mut dropped) = (0, 0);
        while last < RECORDS {
            match poll_once(&mut stream.next()) {
                Poll::Ready(batch) => last = follows(&batch.unwrap().unwrap(), last),
                Poll::Pending => {
                    dropped += 1;
                    std::thread::yield_now();
                }
            }
        }
        writer.join().unwrap();
        dropped
    });
    assert!(dropped > 0, "nothing was ever waited for");
}

/// A bad unit makes a task wait for a look at everything: that future may be dropped, too.
#[test]
fn corruption_is_reported_to_every_task_that_polls() {
    let disk = SimDisk::new(1);
    let (log, reader) = both(&disk);
    append(&log, 40);
    reader.refresh().unwrap();
    let mut stream = reader.stream(Start::Oldest).unwrap();
    let name = disk.files(DIR.as_ref()).unwrap().into_iter().filter(|name| name.ends_with(".seg"));
    let oldest = std::path::Path::new(DIR).join(name.min().unwrap());
    disk.flip_bit(&oldest, (4096 * 6 + 100) * 8).unwrap();
    let (last, error) = in_time("reading up to the damage", move || {
        let mut last = 0;
        loop {
            match poll_once(&mut stream.next()) {
                Poll::Ready(Some(Ok(batch))) => last = follows(&batch, last),
                Poll::Ready(other) => return (last, other),
                Poll::Pending => std::thread::yield_now(),
            }
        }
    });
    assert_eq!(last, 5, "a lonely record takes a block");
    assert!(matches!(error, Some(Err(ReadError::Corrupted(_)))), "{error:?}");
    log.close().unwrap();
}

#[test]
fn nothing_polls_while_no_reader_waits() {
    let disk = SimDisk::new(1);
    let (log, reader) = both(&disk);
    let mut stream = reader.stream(Start::Tip).unwrap();
    append(&log, 1);
    follows(&waiting(&mut stream).unwrap(), 0);
    let end = stream.blocking_next_timeout(SHORT).err();
    assert!(matches!(end, Some(ReadError::Timeout)), "{end:?}");
    // The stream is there, and does not wait any more.
    let mut before = 0;
    until("the reads come to an end", || {
        std::thread::sleep(10 * SHORT);
        std::mem::replace(&mut before, disk.reads()) == disk.reads()
    });
    drop(log.append(payload(2)).unwrap());
    assert_eq!(follows(&stream.blocking_next().unwrap(), 1), 2);
    log.close().unwrap();
}

/// The engine of the options reads for the tasks, and may be gone.
#[test]
fn waiting_reader_reads_itself_without_reader_threads() {
    let disk = SimDisk::new(1);
    let engine = Engine::new(1).unwrap();
    let mut options = small(&disk);
    options.engine = Some(engine.clone());
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    append(&log, 100);
    let reader = ReadOnlyLog::builder(DIR).options(options).open().unwrap();
    engine.stop();
    let mut stream = reader.stream(Start::Oldest).unwrap();
    let last = in_time("reading without an engine", move || {
        let mut last = 0;
        while last < 100 {
            last = follows(&waiting(&mut stream).unwrap(), last);
        }
        last
    });
    assert_eq!(last, 100);
    log.close().unwrap();
}

/// A task waits for a record that another process writes, not for the next.
#[test]
fn a_task_waits_for_a_number() {
    let (log, reader) = both(&SimDisk::new(1));
    append(&log, 2);
    for seq in [1, 2, 5, 6, 30] {
        let waiting = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| block_on(reader.wait_durable(seq)));
            while log.durable().0 < seq {
                assert!(reader.durable().0 < seq);
                append(&log, 1);
            }
            waiting.join().unwrap()
        });
        waiting.unwrap();
        assert!(reader.durable().0 >= seq);
        assert!(reader.read(seq).unwrap().payload() == payload(seq));
    }
    // Closing the reader ends the wait; a wait that is given up holds nothing.
    let ended = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(reader.wait_durable(1000)));
        let mut other = Box::pin(reader.wait_durable(1000));
        assert!(poll_once(&mut other).is_pending());
        drop(other);
        std::thread::sleep(SHORT);
        reader.close();
        waiting.join().unwrap()
    });
    assert!(matches!(ended, Err(OpenError::Log(LogError::Closed))), "{ended:?}");
    log.close().unwrap();
}

/// The directory cannot be polled: a task that waits for a number is not left waiting.
#[test]
fn a_wait_for_a_number_ends_with_the_error_of_a_poll() {
    let disk = SimDisk::new(1);
    let (log, reader) = both(&disk);
    append(&log, 1);
    disk.inject(Fault::on(Op::Read, Effect::Io));
    let ended = block_on(reader.wait_durable(2));
    assert!(matches!(ended, Err(OpenError::Log(LogError::Io(_)))), "{ended:?}");
    disk.clear_faults();
    append(&log, 1);
    block_on(reader.wait_durable(2)).unwrap();
    log.close().unwrap();
}

/// Bug: of a log that was empty when the reader opened it, it was nothing.
#[test]
fn what_is_stored_follows_the_writer() {
    let (log, reader) = both(&SimDisk::new(1));
    assert_eq!(reader.storage().stored().unwrap().records, 0);
    for count in [1, 20, 300] {
        append(&log, count);
        block_on(reader.wait_durable(log.durable())).unwrap();
        let stored = reader.storage().stored().unwrap();
        assert_eq!((stored.records, stored.skipped), (log.durable().0, 0));
        let payload: usize = (1..=log.durable().0).map(|seq| payload(seq).len()).sum();
        assert_eq!(stored.payload_bytes, Some(payload as u64));
        assert_eq!(reader.storage().metadata().records, log.durable().0);
    }
}
