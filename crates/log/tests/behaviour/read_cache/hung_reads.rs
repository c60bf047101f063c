//! A disk that does not answer: a future that waits for it blocks no other, can be dropped, and is
//! woken when the log ends.
//!
//! Guards the bound on reads at a time.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::{Engine, Log, LogError, LogStream, ReadError, Seq, Start};
use futures_util::StreamExt;

use crate::fixture::{
    DIR, LONG, Opens, Wakes, append, block_on, follows, in_time, payloads, poll, read_from, ready,
    seen, small, until,
};

const RECORDS: u64 = 300;
/// As many as threads of the engine read, and as many more.
const PLACES: u64 = 6;

/// A log of many segments whose reads are held.
struct Held {
    log: Log,
    engine: Engine,
    disk: SimDisk,
    gate: Gate,
    _opens: Opens,
}

fn held() -> Held {
    let disk = SimDisk::new(1);
    let engine = Engine::new(1).unwrap();
    let mut options = small(&disk);
    options.tail_cache = 32 << 10;
    options.engine = Some(engine.clone());
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, RECORDS);
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Read, Effect::Block(gate.clone())).path(".seg"));
    let opens = Opens(disk.clone(), gate.clone());
    Held { log, engine, disk, gate, _opens: opens }
}

/// A reader, and how often it was woken.
struct Reader {
    stream: LogStream,
    last: u64,
    wakes: Arc<Wakes>,
    waker: Waker,
}

impl Reader {
    /// A reader that waits for the disk.
    fn waiting(log: &Log, after: u64) -> Self {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let stream = log.stream(Start::After(Seq(after))).unwrap();
        let mut reader = Self { stream, last: after, wakes, waker };
        assert!(poll(&mut reader.stream, &reader.waker).is_pending());
        reader
    }

    /// Readers of different records, each in a segment of its own.
    fn of_many_places(log: &Log) -> Vec<Self> {
        (0..PLACES).map(|n| Self::waiting(log, n * 30)).collect()
    }

    /// Reads to the end of what there is.
    fn read_all(&mut self) {
        while self.last < RECORDS {
            let next = block_on(self.stream.next());
            self.last = follows(&next.unwrap().unwrap(), self.last);
        }
    }
}

#[test]
fn other_readers_continue_and_the_hung_read_wakes_its_reader() {
    let held = held();
    let (log, gate) = (held.log.clone(), held.gate.clone());
    in_time("reading beside a read that hangs", move || {
        let mut tip = log.stream(Start::Tip).unwrap();
        let mut cold = Reader::waiting(&log, 0);
        assert!(gate.wait_for(1, LONG));
        for seq in RECORDS + 1..=RECORDS + 20 {
            append(&log, 1);
            assert_eq!(seen(&ready(poll(&mut tip, Waker::noop()))), payloads([seq]));
            assert!(poll(&mut cold.stream, &cold.waker).is_pending());
        }
        assert_eq!(cold.wakes.count(), 0);
        gate.open();
        until("the read wakes its reader", || cold.wakes.count() > 0);
        cold.last = follows(&ready(poll(&mut cold.stream, &cold.waker)), 0);
        cold.read_all();
    });
    held.log.close().unwrap();
}

#[test]
fn dropped_readers_leave_no_waiter_and_others_are_served() {
    let held = held();
    let (log, gate, disk) = (held.log.clone(), held.gate.clone(), held.disk.clone());
    in_time("reading beside a reader that left", move || {
        let leaves = Reader::of_many_places(&log);
        assert!(gate.wait_for(1, LONG));
        let mut stays = Reader::waiting(&log, 0);
        let wakes: Vec<_> = leaves.into_iter().map(|reader| reader.wakes).collect();
        gate.open();
        until("the read wakes who is left", || stays.wakes.count() > 0);
        stays.read_all();
        until("no waker is left", || wakes.iter().all(|wakes| Arc::strong_count(wakes) == 1));
        assert_eq!(log.stats().waiting, 0);
        // Everything is there now, what those wanted who left included.
        until("all is read", || {
            let reads = disk.stats().reads;
            assert_eq!(read_from(&log, Start::Oldest).unwrap(), payloads(1..=RECORDS));
            disk.stats().reads == reads
        });
    });
    held.log.close().unwrap();
}

#[test]
fn close_wakes_readers_while_the_disk_hangs() {
    let held = held();
    let (log, gate) = (held.log.clone(), held.gate.clone());
    in_time("closing beside reads that hang", move || {
        let mut readers = Reader::of_many_places(&log);
        assert!(gate.wait_for(1, LONG));
        log.close().unwrap();
        for reader in &mut readers {
            assert!(reader.wakes.count() > 0, "the reader after {} was not woken", reader.last);
            let end = poll(&mut reader.stream, &reader.waker);
            assert!(
                matches!(end, Poll::Ready(Some(Err(ReadError::Log(LogError::Closed))))),
                "{end:?}"
            );
            assert!(matches!(poll(&mut reader.stream, &reader.waker), Poll::Ready(None)));
        }
        drop(readers);
        gate.open();
    });
}

#[test]
fn readers_read_themselves_after_the_engine_stops() {
    let held = held();
    let (log, gate, engine) = (held.log.clone(), held.gate.clone(), held.engine.clone());
    in_time("reading without an engine", move || {
        let mut readers = Reader::of_many_places(&log);
        assert!(gate.wait_for(1, LONG));
        engine.stop();
        assert!(readers.iter().all(|reader| reader.wakes.count() > 0));
        gate.open();
        for reader in &mut readers {
            reader.read_all();
            let end = block_on(reader.stream.next());
            assert!(matches!(end, Some(Err(ReadError::Log(LogError::Stopped)))), "{end:?}");
        }
    });
    assert!(matches!(held.log.close(), Err(LogError::Stopped)));
}

/// Threads that read by themselves, and tasks for which the engine does.
#[test]
fn at_most_four_reads_are_in_flight() {
    let held = held();
    let (log, gate) = (held.log.clone(), held.gate.clone());
    in_time("reading at most four at a time", move || {
        let threads: Vec<_> = (0..PLACES)
            .map(|n| {
                let log = log.clone();
                std::thread::spawn(move || {
                    let mut stream = log.stream(Start::After(Seq(n * 30))).unwrap();
                    follows(&stream.blocking_next().unwrap(), n * 30);
                })
            })
            .collect();
        assert!(gate.wait_for(4, LONG));
        let mut tasks: Vec<_> = (0..3).map(|n| Reader::waiting(&log, 30 * (PLACES + n))).collect();
        assert!(!gate.wait_for(5, Duration::from_millis(300)), "{} reads", gate.waiting());
        gate.open();
        for thread in threads {
            thread.join().unwrap();
        }
        tasks.iter_mut().for_each(Reader::read_all);
    });
    held.log.close().unwrap();
}
