//! Ten thousand streams on one log: all wait, all are woken by one commit, and a dropped
//! one leaves nothing behind. What readers hold does not block appends.
//!
//! Guards `reader_memory`, and against a reader that holds what it read and keeps its own append
//! waiting for ever.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::sync::Arc;
use std::task::{Poll, Waker};

use esker_disk::sim::SimDisk;
use esker_log::{Batch, Log, LogError, LogStream, ReadError, Start};

use crate::fixture::{
    self, DIR, Wakes, append, driven, in_time, payload, payloads, poll, ready, seen, small, until,
};

const READERS: usize = 10_000;
/// The size of a staging buffer.
const WINDOW: u64 = 8 << 10;
const BUFFERS: u64 = 2 * WINDOW;

/// Streams that wait at the tip, and the waker that they share.
struct WaitingReaders {
    streams: Vec<LogStream>,
    wakes: Arc<Wakes>,
    waker: Waker,
}

impl WaitingReaders {
    fn waiting(log: &Log, count: usize) -> Self {
        let streams = (0..count).map(|_| log.stream(Start::Tip).unwrap()).collect();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut readers = Self { streams, wakes, waker };
        readers.wait();
        readers
    }

    /// All wait again.
    fn wait(&mut self) {
        for stream in &mut self.streams {
            assert!(poll(stream, &self.waker).is_pending());
        }
    }

    /// The batch that each has next.
    fn take(&mut self) -> Vec<Batch> {
        self.streams.iter_mut().map(|stream| ready(poll(stream, &self.waker))).collect()
    }
}

fn log() -> Log {
    Log::builder(DIR).options(small(&SimDisk::new(1))).open().unwrap()
}

#[test]
fn one_append_wakes_them_all_and_each_reads_it() {
    let log = log();
    append(&log, 3);
    let mut readers = WaitingReaders::waiting(&log, READERS);
    assert_eq!(log.stats().waiting, READERS);
    for round in 1..=3 {
        let seq = 3 + round as u64;
        append(&log, 1);
        until("every reader is woken", || readers.wakes.count() >= round * READERS);
        assert_eq!(readers.wakes.count(), round * READERS, "one wake for each");
        let batches = readers.take();
        assert!(batches.iter().all(|batch| seen(batch) == payloads([seq])));
        // They share the bytes.
        assert!(log.stats().memory_bytes <= BUFFERS + WINDOW, "{:?}", log.storage().metadata());
        readers.wait();
    }
    let WaitingReaders { streams, wakes, waker } = readers;
    drop(streams);
    drop(waker);
    assert_eq!(log.stats().waiting, 0);
    assert_eq!(Arc::strong_count(&wakes), 1, "a waker is left behind");
    append(&log, 20);
    assert!(log.stats().memory_bytes <= BUFFERS + WINDOW, "{:?}", log.storage().metadata());
    log.close().unwrap();
}

#[test]
fn half_of_the_waiting_readers_may_be_dropped() {
    let log = log();
    let mut stay = WaitingReaders::waiting(&log, READERS / 2);
    let mut leave = WaitingReaders::waiting(&log, READERS / 2);
    assert_eq!(log.stats().waiting, READERS);
    leave.streams.truncate(READERS / 4);
    assert_eq!(log.stats().waiting, READERS * 3 / 4);
    leave.streams.clear();
    assert_eq!(log.stats().waiting, READERS / 2);
    append(&log, 1);
    until("the rest is woken", || stay.wakes.count() >= READERS / 2);
    assert!(stay.take().iter().all(|batch| seen(batch) == payloads([1])));
    assert_eq!((stay.wakes.count(), leave.wakes.count()), (READERS / 2, 0));
    // Others may come to the places that were left.
    let mut come = WaitingReaders::waiting(&log, READERS / 2);
    stay.wait();
    assert_eq!(log.stats().waiting, READERS);
    append(&log, 1);
    until("all are woken", || stay.wakes.count() + come.wakes.count() >= READERS * 3 / 2);
    assert!(stay.take().iter().chain(&come.take()).all(|batch| seen(batch) == payloads([2])));
    drop((stay, come, leave));
    assert_eq!(log.stats().waiting, 0);
    log.close().unwrap();
}

#[test]
fn close_ends_the_wait_of_every_reader() {
    let log = log();
    append(&log, 1);
    let mut readers = WaitingReaders::waiting(&log, READERS);
    log.close().unwrap();
    assert_eq!(readers.wakes.count(), READERS);
    for stream in &mut readers.streams {
        let end = poll(stream, &readers.waker);
        assert!(matches!(end, Poll::Ready(Some(Err(ReadError::Log(LogError::Closed))))), "{end:?}");
        assert!(matches!(poll(stream, &readers.waker), Poll::Ready(None)));
    }
    drop(readers);
    assert_eq!(log.stats().waiting, 0);
}

/// A reader that appends, and drops nothing that it ever read: through every buffer many times,
/// past `reader_memory`, and with room for more each time.
#[test]
fn reader_that_keeps_its_batches_can_append() {
    let mut options = small(&SimDisk::new(1));
    options.tail_cache = 32 << 10;
    options.reader_memory = 64 << 10;
    let log = Log::builder(DIR).options(options).open().unwrap();
    let writer = log.clone();
    let held = in_time("appending", move || {
        let mut stream = writer.stream(Start::Oldest).unwrap();
        let mut held = Vec::new();
        for seq in 1..=300 {
            let ticket = writer.append(payload(seq)).unwrap();
            assert_eq!(ticket.blocking_wait().unwrap().seq.0, seq);
            held.push(stream.blocking_next().unwrap());
        }
        held
    });
    assert!(log.stats().memory_bytes > 64 << 10, "{:?}", log.storage().metadata());
    assert_eq!(held.iter().flat_map(seen).collect::<Vec<_>>(), payloads(1..=300));
    log.close().unwrap();
}

/// Beyond `reader_memory` all readers read from the files, and when what is held was dropped they
/// are back at the memory of the tail.
#[test]
fn readers_that_keep_batches_are_bounded_by_reader_memory() {
    let (tail_cache, reader_memory) = (64 << 10, 128 << 10);
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    (options.tail_cache, options.reader_memory) = (tail_cache, reader_memory);
    let log = Log::builder(DIR).options(options).open().unwrap();
    let bound = BUFFERS + tail_cache + reader_memory + tail_cache + WINDOW;
    let mut streams: Vec<_> = (0..4).map(|_| log.stream(Start::Oldest).unwrap()).collect();
    let mut held: Vec<Vec<Batch>> = vec![Vec::new(); streams.len()];
    let mut peak = 0;
    let reads = disk.stats().reads;
    for round in 0..300 {
        append(&log, 1);
        // Each is at another place: the later ones fall behind and catch up.
        for (n, stream) in streams.iter_mut().enumerate() {
            if round % (n + 1) == 0 {
                while let Some(batch) = stream.try_next().unwrap() {
                    held[n].push(batch);
                }
            }
        }
        peak = peak.max(log.stats().memory_bytes);
        assert!(peak <= bound, "{peak} after {round} rounds, and not {bound}");
    }
    assert!(peak > reader_memory, "{peak}");
    assert!(disk.stats().reads > reads, "no reader was sent to the files");
    for (stream, mut held) in streams.iter_mut().zip(held) {
        while let Some(batch) = stream.try_next().unwrap() {
            held.push(batch);
        }
        assert_eq!(held.iter().flat_map(seen).collect::<Vec<_>>(), payloads(1..=300));
    }
    append(&log, 10);
    let memory = log.stats().memory_bytes;
    assert!(memory <= BUFFERS + tail_cache + WINDOW, "{memory}");
    let reads = disk.stats().reads;
    for mut stream in streams {
        let all = fixture::rest(&mut stream);
        assert_eq!(all, payloads(301..=310));
    }
    assert_eq!(disk.stats().reads, reads, "the tail is in memory");
    engine.run();
    log.close().unwrap();
}
