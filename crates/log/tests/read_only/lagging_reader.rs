//! A reader beside the writer that lags far behind: each byte is read once for all of its streams,
//! a megabyte at a time and ahead, within a bound; also of what was written since the reader looked
//! at everything, where no index says where units begin.
//!
//! Guards: readers that each read the same bytes; a reader that holds buffers and blocks others.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::task::Poll;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::{Engine, Log, LogStream, Options, ReadError, ReadOnlyLog, Seq, Start, Trimmed};
use futures_util::StreamExt;

use crate::fixture::{
    self, DIR, LONG, append_many, block_on, driven, follows, in_time, payload, poll_once, small,
};

const RECORDS: u64 = 10_000;
const PIECE: u64 = 1 << 20;

/// Segments of several pieces.
fn options(disk: &SimDisk) -> Options {
    let mut options = small(disk);
    options.segment_size = 3 << 20;
    options.buffer_size = 64 << 10;
    options.buffers = 4;
    options
}

fn manual(disk: &SimDisk) -> Options {
    let mut options = options(disk);
    options.engine = Some(Engine::manual());
    options
}

/// A log of seven pieces and more; how many bytes that is.
fn long(disk: &SimDisk) -> (Log, u64) {
    let log = Log::builder(DIR).options(options(disk)).open().unwrap();
    append_many(&log, RECORDS);
    let bytes = log.storage().metadata().position.0;
    assert!(bytes > 7 * PIECE, "{bytes}");
    (log, bytes)
}

fn read(stream: &mut LogStream, mut last: u64) {
    while last < RECORDS {
        last = follows(&stream.blocking_next().unwrap(), last);
    }
}

fn read_waiting(stream: &mut LogStream, mut last: u64) {
    while last < RECORDS {
        last = follows(&block_on(stream.next()).unwrap().unwrap(), last);
    }
}

#[test]
fn a_second_stream_reads_nothing() {
    let disk = SimDisk::new(1);
    let (log, bytes) = long(&disk);
    let reader = ReadOnlyLog::builder(DIR).options(manual(&disk)).open().unwrap();
    let before = disk.stats();
    read(&mut reader.stream(Start::Oldest).unwrap(), 0);
    let first = disk.stats();
    let got = first.bytes_read - before.bytes_read;
    // A look at the mark for each piece, and nothing twice.
    assert!(got <= bytes + (4 << 10), "{got} of {bytes} bytes");
    let reads = first.reads - before.reads;
    assert!(reads <= 2 * (2 * bytes / PIECE + 6), "{reads} reads");
    for start in [0, 0, 1, 777, 5_000] {
        read(&mut reader.stream(Start::After(Seq(start))).unwrap(), start);
        read_waiting(&mut reader.stream(Start::After(Seq(start))).unwrap(), start);
    }
    let looks = 64 * (disk.stats().reads - first.reads);
    assert!(disk.stats().bytes_read - first.bytes_read <= looks, "something was read again");
    log.close().unwrap();
}

#[test]
fn cached_bytes_are_bounded() {
    let disk = SimDisk::new(1);
    let (log, _) = long(&disk);
    let mut options = options(&disk);
    options.read_cache = 2 * PIECE;
    let reader = ReadOnlyLog::builder(DIR).options(options).open().unwrap();
    in_time("reading", move || {
        for read in [read, read_waiting] {
            let mut stream = reader.stream(Start::Oldest).unwrap();
            read(&mut stream, 0);
            let kept = reader.storage().metadata().read_cache_bytes;
            assert!(kept > 0 && kept <= 2 * PIECE, "{kept}");
        }
        reader.close();
        assert_eq!(reader.storage().metadata().read_cache_bytes, 0);
    });
    log.close().unwrap();
}

/// The reader looked at everything when there was nothing; then it follows the mark.
#[test]
fn records_written_since_are_read_in_chunks() {
    let disk = SimDisk::new(1);
    let mut options = manual(&disk);
    // One that does not end, and so has no footer.
    options.segment_size = 64 << 20;
    // Units of which no number makes up a piece.
    options.buffer_size = 40 << 10;
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    append_many(&log, 1);
    let reader = ReadOnlyLog::builder(DIR).options(options).open().unwrap();
    append_many(&log, RECORDS - 1);
    reader.refresh().unwrap();
    assert_eq!((reader.durable(), reader.storage().metadata().segments), (Seq(RECORDS), 1));
    let bytes = log.storage().metadata().position.0;
    let before = disk.stats();
    read(&mut reader.stream(Start::Oldest).unwrap(), 0);
    let reads = disk.stats().reads - before.reads;
    assert!(reads <= 2 * (bytes / PIECE + 8), "{reads} reads of {bytes} bytes");
    let got = disk.stats().bytes_read - before.bytes_read;
    // Of each piece a part of a unit, which the next one begins with.
    assert!(got <= bytes + 12 * (64 << 10), "{got} of {bytes} bytes");
    let before = disk.stats().reads;
    read(&mut reader.stream(Start::Oldest).unwrap(), 0);
    assert_eq!(disk.stats().reads, before, "a second stream reads nothing");
    log.close().unwrap();
}

/// A segment that ended since then has a footer, and with it an index.
#[test]
fn segments_that_ended_since_have_their_index() {
    let disk = SimDisk::new(1);
    let engine = Engine::manual();
    let mut options = options(&disk);
    options.engine = Some(engine.clone());
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    append_many(&log, 1);
    let reader = ReadOnlyLog::builder(DIR).options(options).open().unwrap();
    for _ in 0..20 {
        append_many(&log, 500);
        engine.run();
        reader.refresh().unwrap();
    }
    assert!(reader.storage().metadata().segments > 2, "{}", reader.storage().metadata().segments);
    let before = disk.stats().bytes_read;
    for seq in [2, 700, 1500, 2500] {
        assert_eq!(reader.read(seq).unwrap().payload(), payload(seq));
    }
    let got = disk.stats().bytes_read - before;
    assert!(got <= 4 * (256 << 10), "{got} bytes for four records");
    log.close().unwrap();
}

/// A unit that is longer than a piece, where nothing says so beforehand.
#[test]
fn long_records_written_since_are_read() {
    let disk = SimDisk::new(1);
    let mut options = manual(&disk);
    options.record_limit = 4 << 20;
    options.read_cache = 64 << 20;
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    append_many(&log, 1);
    let reader = ReadOnlyLog::builder(DIR).options(options).open().unwrap();
    let record = |n: u64| vec![n as u8; ((n % 5) * (800 << 10)) as usize + 100];
    for n in 2..=20 {
        log.append(record(n)).unwrap().blocking_wait().unwrap();
    }
    reader.refresh().unwrap();
    let mut reads = Vec::new();
    for _ in 0..2 {
        let mut stream = reader.stream(Start::After(Seq(1))).unwrap();
        let mut next = 2;
        while let Some(batch) = stream.try_next().unwrap() {
            for record_read in &batch {
                assert_eq!(record_read.seq, Seq(next));
                assert!(record_read.payload == record(next), "record {next}");
                next += 1;
            }
        }
        assert_eq!(next, 21);
        reads.push(disk.stats().reads);
    }
    assert_eq!(reads[0], reads[1], "a second stream reads nothing");
    log.close().unwrap();
}

/// Tasks wait for the threads of the reader, and for no disk.
#[test]
fn other_readers_continue_while_a_read_hangs() {
    let disk = SimDisk::new(1);
    let (log, _) = long(&disk);
    let reader = ReadOnlyLog::builder(DIR).options(options(&disk)).open().unwrap();
    let mut late = reader.stream(Start::After(Seq(RECORDS / 2))).unwrap();
    assert!(follows(&late.blocking_next().unwrap(), RECORDS / 2) > RECORDS / 2);
    let gate = Gate::new();
    let _opens = fixture::Opens(disk.clone(), gate.clone());
    disk.inject(Fault::on(Op::Read, Effect::Block(gate.clone())).path(".seg"));
    let mut stuck = reader.stream(Start::Oldest).unwrap();
    let stuck = in_time("a poll", move || {
        assert!(poll_once(&mut stuck.next()).is_pending());
        stuck
    });
    assert!(gate.wait_for(1, LONG));
    // Cached records are returned to any stream.
    let mut kept = reader.stream(Start::After(Seq(RECORDS / 2))).unwrap();
    assert!(poll_once(&mut kept.next()).is_ready());
    drop(stuck);
    gate.open();
    disk.clear_faults();
    in_time("reading afterwards", move || {
        read_waiting(&mut reader.stream(Start::Oldest).unwrap(), 0);
    });
    log.close().unwrap();
}

/// Its read is queued after reads that hang. No thread of the reader is left to do it, so the
/// waiting caller does.
#[test]
fn an_engine_that_stops_takes_no_read_with_it() {
    let disk = SimDisk::new(1);
    let (log, _) = long(&disk);
    let engine = Engine::new(1).unwrap();
    let mut options = options(&disk);
    options.engine = Some(engine.clone());
    let reader = ReadOnlyLog::builder(DIR).options(options).open().unwrap();
    let gate = Gate::new();
    let opens = fixture::Opens(disk.clone(), gate.clone());
    disk.inject(Fault::on(Op::Read, Effect::Block(gate.clone())).path(".seg"));
    let mut streams = [0, 2_500, 5_000, 7_500]
        .map(|after| (reader.stream(Start::After(Seq(after))).unwrap(), after));
    let [busy @ .., (queued, after)] = &mut streams;
    for ((stream, _), hanging) in busy.iter_mut().zip(1..) {
        assert!(poll_once(&mut stream.next()).is_pending());
        assert!(gate.wait_for(hanging, LONG));
    }
    assert!(poll_once(&mut queued.next()).is_pending());
    disk.clear_faults();
    engine.stop();
    let Poll::Ready(Some(Ok(batch))) = poll_once(&mut queued.next()) else {
        panic!("it waits for a thread that is gone");
    };
    follows(&batch, *after);
    drop(opens);
    drop(streams);
    log.close().unwrap();
}

/// A ring turns under a reader that keeps up: what leaves is let go of, without a look at
/// everything.
#[test]
fn dropped_segments_are_released() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.retention.segments = Some(3);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    append_many(&log, 100);
    let reader = ReadOnlyLog::builder(DIR).options(options).open().unwrap();
    let mut stream = reader.stream(Start::Tip).unwrap();
    let mut paused = reader.stream(Start::Oldest).unwrap();
    assert!(follows(&paused.blocking_next().unwrap(), reader.oldest().0 - 1) < 100);
    disk.inject(Fault::on(Op::List, Effect::Io));
    let mut last = 100;
    for _ in 0..30 {
        append_many(&log, 50);
        engine.run();
        last = follows(&stream.blocking_next().unwrap(), last);
        while let Some(batch) = stream.try_next().unwrap() {
            last = follows(&batch, last);
        }
        assert_eq!(last, log.durable().0);
        reader.refresh().unwrap();
        assert_eq!(reader.oldest(), log.oldest());
        assert!(
            reader.storage().metadata().segments <= 4,
            "{}",
            reader.storage().metadata().segments
        );
        assert!(
            reader.storage().metadata().read_cache_bytes <= 4 * (64 << 10) + (64 << 10),
            "{}",
            reader.storage().metadata().read_cache_bytes
        );
    }
    let end = paused.blocking_next().err();
    assert!(
        matches!(end, Some(ReadError::Trimmed(Trimmed { oldest })) if oldest == log.oldest()),
        "{end:?}"
    );
    disk.clear_faults();
    log.retention().truncate_before(last - 3).unwrap();
    let mut again = reader.stream(Start::Tip).unwrap();
    reader.refresh().unwrap();
    assert_eq!(reader.oldest(), Seq(last - 3), "a floor inside a segment");
    append_many(&log, 1);
    assert_eq!(follows(&again.blocking_next().unwrap(), last), last + 1);
    log.close().unwrap();
}
