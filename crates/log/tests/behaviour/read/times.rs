//! The times of records, and streams that start at a time.
//!
//! Guards: a time that recovery replaces by its own; a clock that was set back, after which a time
//! is searched where it is not; a record of the time or later that a stream begins after.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker_disk::sim::SimDisk;
use esker_log::{
    Append, Engine, Log, LogStream, Options, Policy, ReadError, ReadOnlyLog, Seq, Start, repair,
};

use crate::fixture::{DIR, driven, payload, read_from};

fn at(ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

/// The numbers and times of everything from a start on.
fn times(stream: &mut LogStream) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    loop {
        match stream.try_next() {
            Ok(Some(batch)) => all.extend(batch.iter().map(|record| {
                let time = record.time().unwrap().duration_since(UNIX_EPOCH).unwrap();
                (record.seq.0, time.as_millis() as u64)
            })),
            Ok(None) => return all,
            Err(ReadError::Quarantined(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// A stream from each time, and from the moments beside it, begins with the first record that has
/// it or a later one.
fn check(expected: &[(u64, u64)], stream: impl Fn(Start) -> LogStream) {
    assert_eq!(times(&mut stream(Start::Oldest)), expected);
    let times_around = expected.iter().flat_map(|(_, ms)| [ms - 1, *ms, ms + 1]);
    for ms in times_around.chain([0, u64::MAX / 2_000_000]) {
        let from = expected.partition_point(|(_, time)| *time < ms);
        assert_eq!(times(&mut stream(Start::At(at(ms)))), expected[from..], "from {ms} ms");
    }
}

fn check_all(log: &Log, disk: &SimDisk, expected: &[(u64, u64)]) {
    check(expected, |start| log.stream(start).unwrap());
    check_read_only(disk, expected);
}

fn check_read_only(disk: &SimDisk, expected: &[(u64, u64)]) {
    let reader = ReadOnlyLog::builder(DIR).disk(Arc::new(disk.clone())).engine(Engine::manual());
    let reader = reader.open().unwrap();
    check(expected, |start| reader.stream(start).unwrap());
}

struct Writing {
    log: Log,
    engine: Engine,
    disk: SimDisk,
    now: u64,
    expected: Vec<(u64, u64)>,
}

impl Writing {
    fn open(disk: &SimDisk, now: u64, policy: Policy) -> Self {
        Self::open_with(disk, now, |options| options.policy = policy)
    }

    fn open_with(disk: &SimDisk, now: u64, set: impl FnOnce(&mut Options)) -> Self {
        let (mut options, engine) = driven(disk);
        set(&mut options);
        engine.advance(Duration::from_millis(now));
        let log = Log::builder(DIR).options(options).open().unwrap();
        Self { log, engine, disk: disk.clone(), now, expected: Vec::new() }
    }

    /// Commits of one to three records, and some time between most of them.
    fn append(&mut self, commits: u64) {
        for commit in 0..commits {
            let ms = [0, 3, 1, 700][commit as usize % 4];
            self.engine.advance(Duration::from_millis(ms));
            self.now += ms;
            let first = self.log.accepted().0 + 1;
            let batch: Vec<_> = (first..first + 1 + commit % 3).map(payload).collect();
            let batch: Vec<_> = batch.iter().collect();
            let last =
                self.log.write(Append::records(&batch)).unwrap().blocking_wait().unwrap().seq.0;
            let time = self.expected.last().map_or(0, |(_, ms)| *ms).max(self.now);
            self.expected.extend((first..=last).map(|seq| (seq, time)));
        }
        self.engine.run();
    }
}

/// Over several segments, while they are written, and after a close.
#[test]
fn a_stream_starts_at_a_time() {
    let mut one = Writing::open(&SimDisk::new(1), 5_000, Policy::Always);
    check_all(&one.log, &one.disk, &[]);
    one.append(240);
    assert!(one.log.storage().metadata().segments > 4);
    check_all(&one.log, &one.disk, &one.expected);
    one.log.retention().truncate_before(100).unwrap();
    one.expected.retain(|(seq, _)| *seq >= 100);
    check_all(&one.log, &one.disk, &one.expected);
    one.log.close().unwrap();
    check_read_only(&one.disk, &one.expected);
}

/// A stream that starts at a time to come waits for it, also past records that arrive before.
#[test]
fn a_stream_starts_at_a_time_to_come() {
    let mut one = Writing::open(&SimDisk::new(1), 5_000, Policy::Always);
    one.append(3);
    let start = Start::At(at(one.now + 650));
    let reader = ReadOnlyLog::builder(DIR).disk(Arc::new(one.disk.clone()));
    let reader = reader.engine(Engine::manual()).open().unwrap();
    let (mut own, mut other) = (one.log.stream(start).unwrap(), reader.stream(start).unwrap());
    one.append(3);
    reader.refresh().unwrap();
    assert!(own.try_next().unwrap().is_none() && other.try_next().unwrap().is_none());
    one.append(8);
    reader.refresh().unwrap();
    let from = one.expected.partition_point(|(_, time)| at(*time) < at(5_000 + 4 + 650));
    assert!(from > 6);
    assert_eq!(times(&mut own), one.expected[from..]);
    assert_eq!(times(&mut other), one.expected[from..]);
}

/// Bug: where a ring had reused the segment that a stream from a time was to begin with, the stream
/// reported corruption. It begins with the oldest record instead, as if it were made then.
#[test]
fn a_stream_from_a_time_begins_with_what_a_ring_has_left() {
    for (made_before, looks) in [(false, false), (false, true), (true, false), (true, true)] {
        for nth in [1, 9, 30, 60] {
            let disk = SimDisk::new(1);
            let ring = |options: &mut Options| options.retention.segments = Some(3);
            let mut one = Writing::open_with(&disk.process(), 5_000, ring);
            one.append(200);
            let (mut options, _) = driven(&disk.process());
            // A search in a segment reads its units.
            (options.index_bytes, options.index_records) = (64 << 10, 1 << 20);
            let reader = ReadOnlyLog::builder(DIR).options(options).open().unwrap();
            // Of the segments that are there, the oldest will be written again.
            let start = Start::At(at(times(&mut one.log.stream(Start::Oldest).unwrap())[nth].1));
            let made = made_before.then(|| reader.stream(start).unwrap());
            one.append(200);
            if looks {
                reader.refresh().unwrap();
                one.append(200);
            }
            let mut stream = made.unwrap_or_else(|| reader.stream(start).unwrap());
            let there = times(&mut one.log.stream(Start::Oldest).unwrap());
            assert_eq!(times(&mut stream), there, "{made_before} {looks} {nth}");
        }
    }
}

/// A reader scans the directory again, and its stream has delivered nothing yet.
#[test]
fn a_writer_that_recovers_changes_no_start() {
    let disk = SimDisk::new(1);
    let mut one = Writing::open(&disk.process(), 5_000, Policy::Always);
    one.append(9);
    let reader = ReadOnlyLog::builder(DIR).disk(Arc::new(disk.clone()));
    let reader = reader.engine(Engine::manual()).open().unwrap();
    let start = one.expected[7].1;
    let mut stream = reader.stream(Start::At(at(start))).unwrap();
    one.log.close().unwrap();
    let mut again = Writing::open(&disk.process(), one.now, Policy::Always);
    again.expected = one.expected;
    again.append(2);
    reader.refresh().unwrap();
    let from = again.expected.partition_point(|(_, time)| *time < start);
    assert!(from > 1);
    assert_eq!(times(&mut stream), again.expected[from..]);
}

/// The clock begins far before the last record.
#[test]
fn a_clock_that_was_set_back_moves_no_time_back() {
    let mut one = Writing::open(&SimDisk::new(1), 5_000, Policy::Always);
    one.append(50);
    one.log.close().unwrap();
    let mut again = Writing::open(&one.disk, 1_000, Policy::Always);
    again.expected = one.expected;
    again.append(50);
    let last = again.expected.last().unwrap().1;
    assert!(again.now < last, "the clock is to be behind");
    check_all(&again.log, &again.disk, &again.expected);
}

/// Recovery writes what may be only in the page cache again, an hour later.
#[test]
fn recovery_keeps_the_times() {
    for policy in [Policy::Always, Policy::OsBuffered] {
        for commits in [1, 20, 90] {
            let disk = SimDisk::new(1);
            let mut one = Writing::open(&disk.process(), 5_000, policy);
            one.append(commits);
            disk.kill();
            disk.power_on();
            let later = Writing::open(&disk.process(), 3_600_000, Policy::Always);
            assert_eq!(later.log.durable().0, one.expected.len() as u64);
            check_all(&later.log, &disk, &one.expected);
            // What comes now has the time of now.
            let seq = later.log.append("later").unwrap().blocking_wait().unwrap().seq.0;
            one.expected.push((seq, 3_600_000));
            check_all(&later.log, &disk, &one.expected);
        }
    }
}

/// `repair` writes units again that carry bounds for lost records; a gap has a time, too.
#[test]
fn repair_keeps_the_times() {
    let mut one = Writing::open(&SimDisk::new(1), 5_000, Policy::Always);
    one.append(120);
    one.log.close().unwrap();
    let path = std::path::Path::new(DIR).join("00000000000000000002.seg");
    one.disk.overwrite(&path, 20_480, &[0x55; 9_000]).unwrap();
    let repaired = repair(DIR, Options::on(Arc::new(one.disk.clone()))).unwrap();
    let lost = &repaired.quarantined[0];
    let is_lost = |seq: u64| lost.from < Seq(seq) && Seq(seq) <= lost.to;
    assert!(one.expected.iter().any(|(seq, _)| is_lost(*seq)), "{repaired:?}");
    one.expected.retain(|(seq, _)| !is_lost(*seq));
    let (log, _engine) = {
        let (options, engine) = driven(&one.disk);
        (Log::builder(DIR).options(options).open().unwrap(), engine)
    };
    check_all(&log, &one.disk, &one.expected);
}

/// Nothing but a stream knows the time of a record, and nothing guesses.
#[test]
fn a_record_that_is_read_alone_has_no_time() {
    let mut one = Writing::open(&SimDisk::new(1), 5_000, Policy::Always);
    one.append(4);
    assert_eq!(one.log.read(2).unwrap().record().time(), None);
    let mut stream = one.log.stream(Start::At(at(0))).unwrap();
    let batch = stream.try_next().unwrap().unwrap();
    assert_eq!((batch.first(), batch.len() as u64), (Some(Seq(1)), batch.last().unwrap().0));
    assert!(read_from(&one.log, Start::At(at(u64::MAX / 2_000_000))).unwrap().is_empty());
}
