//! Bug: a retention by age compared stored times with the wall clock. One commit with the clock
//! ahead, and nothing was dropped any more, not even after everything had been truncated; a clock
//! that was set back kept everything until it had caught up; and one that was set ahead dropped
//! everything at once.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker_disk::sim::{Persist, SimDisk};
use esker_log::{Engine, Log, Options, Policy, ReadOnlyLog, Seq, Start};

use crate::fixture::{DIR, append, driven};

const AGE: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
/// Checks are at most a minute apart, and some records stay for a 256th of the age more.
const LATER: Duration = Duration::from_secs(60 + 3600 / 256 + 1);

/// A time of the wall clock.
fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

const IN_2026: u64 = 1_795_000_000;
const IN_2099: u64 = 4_080_000_000;

/// A log with a retention by age, whose wall clock and whose records' true ages a test knows.
struct Aging {
    log: Log,
    engine: Engine,
    options: Options,
    disk: SimDisk,
    /// How much time has passed.
    now: Duration,
    /// When each record was committed, from number 1 on.
    committed: Vec<Duration>,
}

impl Aging {
    fn open(policy: Policy) -> Self {
        let disk = SimDisk::new(1);
        let (mut options, engine) = driven(&disk.process());
        options.policy = policy;
        options.segment_records = Some(40);
        options.retention.age = Some(AGE);
        engine.set_wall_clock(at(IN_2026));
        let log = Log::builder(DIR).options(options.clone()).open().unwrap();
        Self { log, engine, options, disk, now: Duration::ZERO, committed: Vec::new() }
    }

    /// Opens the log again, with an engine of its own whose wall clock is right.
    fn reopen(self) -> Self {
        let (mut options, engine) = driven(&self.disk.process());
        options.policy = self.options.policy;
        options.segment_records = self.options.segment_records;
        options.retention = self.options.retention;
        let right = at(IN_2026) + self.now;
        engine.set_wall_clock(right);
        let log = Log::builder(DIR).options(options.clone()).open().unwrap();
        Self { log, engine, options, ..self }
    }

    /// The wall clock is right again.
    fn set_right(&self) {
        self.engine.set_wall_clock(at(IN_2026) + self.now);
    }

    fn append(&mut self, count: u64) {
        append(&self.log, count);
        self.committed.resize(self.committed.len() + count as usize, self.now);
    }

    fn advance(&mut self, by: Duration) {
        self.engine.advance(by);
        self.now += by;
    }

    /// Two commits a minute; what is left is always what is not too old.
    fn run(&mut self, minutes: u64) {
        for _ in 0..minutes {
            self.append(2);
            self.advance(MINUTE / 2);
            self.append(1);
            self.advance(MINUTE / 2);
            self.check();
        }
    }

    fn check(&self) {
        let first_of = |age: Duration| {
            let kept = self.now.saturating_sub(age);
            self.committed.partition_point(|committed| *committed < kept) as u64 + 1
        };
        let oldest = self.log.oldest().0;
        let (least, most) = (first_of(AGE + LATER), first_of(AGE));
        assert!((least..=most).contains(&oldest), "{least} to {most}: {oldest} at {:?}", self.now);
    }
}

/// The numbers and times of the records from a start on.
fn times(log: &Log, start: Start) -> Vec<(u64, SystemTime)> {
    let mut stream = log.stream(start).unwrap();
    let batches = std::iter::from_fn(|| stream.try_next().unwrap());
    let each = |batch: esker_log::Batch| -> Vec<_> {
        batch.iter().map(|record| (record.seq.0, record.time().unwrap())).collect()
    };
    batches.flat_map(each).collect()
}

#[test]
fn a_commit_with_the_clock_far_ahead_stops_no_dropping() {
    let mut one = Aging::open(Policy::Always);
    one.run(30);
    one.engine.set_wall_clock(at(IN_2099));
    one.append(1);
    one.set_right();
    one.run(200);
    assert!(one.log.oldest() > Seq(300));
    // Ages need no stored times: all of these are the same.
    let times = times(&one.log, Start::Oldest);
    assert!(times.iter().all(|(_, time)| *time == at(IN_2099)));
    one.log.close().unwrap();
}

#[test]
fn a_clock_set_ahead_drops_nothing_at_once() {
    let mut one = Aging::open(Policy::Always);
    one.run(30);
    one.engine.set_wall_clock(at(IN_2026 + 2 * 3600) + one.now);
    one.run(10);
    assert_eq!(one.log.oldest(), Seq(1));
    one.run(100);
    one.log.close().unwrap();
}

#[test]
fn a_clock_set_back_keeps_nothing_longer() {
    let mut one = Aging::open(Policy::Always);
    one.run(30);
    one.engine.set_wall_clock(at(IN_2026 - 3600));
    one.run(150);
    one.engine.set_wall_clock(UNIX_EPOCH - Duration::from_secs(1));
    one.run(150);
    one.log.close().unwrap();
}

/// A limit that is set later counts from there: the clock was set back before, and ahead after.
#[test]
fn a_limit_that_is_set_while_the_log_is_open_follows_no_step() {
    let mut one = Aging::open(Policy::Always);
    let (limit, mut none) = (one.log.retention().limits(), one.log.retention().limits());
    none.age = None;
    one.log.retention().set_limits(none).unwrap();
    one.append(1);
    one.engine.set_wall_clock(at(IN_2026 - 3600));
    one.append(1);
    one.log.retention().set_limits(limit).unwrap();
    one.engine.set_wall_clock(at(IN_2099));
    // Records 1 and 2 are new as of now.
    one.run(59);
    assert_eq!(one.log.oldest(), Seq(1));
    // To the same limit: ages are counted as before.
    one.log.retention().set_limits(limit).unwrap();
    one.run(30);
    one.log.close().unwrap();
}

/// After an opening, a time ahead of the clock counts as the time of the opening.
#[test]
fn a_time_ahead_of_the_clock_counts_as_new_from_the_opening_on() {
    for clean in [true, false] {
        let mut one = Aging::open(Policy::Always);
        one.run(10);
        one.engine.set_wall_clock(at(IN_2099));
        one.append(1);
        let last_right = one.committed.len() as u64 - 1;
        if clean {
            one.log.close().unwrap();
        } else {
            one.disk.power_cut(Persist::Random);
            one.disk.power_on();
        }
        one.now += 20 * MINUTE;
        let mut one = one.reopen();
        one.append(1);
        // Those with right times are dropped by these.
        one.advance(35 * MINUTE);
        assert!((last_right - 18..last_right).contains(&one.log.oldest().0));
        one.advance(15 * MINUTE);
        assert_eq!(one.log.oldest(), Seq(last_right + 1));
        one.append(1);
        one.advance(9 * MINUTE);
        assert_eq!(one.log.oldest(), Seq(last_right + 1));
        one.advance(2 * MINUTE);
        assert_eq!(one.log.oldest(), Seq(last_right + 3), "all but the last");
        one.log.close().unwrap();
    }
}

/// Where nothing is left of records with a wrong time, times are right again, also after a crash,
/// and for other processes.
#[test]
fn truncating_everything_resets_the_times() {
    for policy in [Policy::Always, Policy::OsBuffered] {
        for (before, after) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut one = Aging::open(policy);
            one.run(20);
            one.engine.set_wall_clock(at(IN_2099));
            one.append(7);
            one.set_right();
            one.append(7);
            one.log.retention().truncate_before(one.log.durable().0 + 1).unwrap();
            let first = one.log.durable().0 + 1;
            let mut one = if before { crash(one) } else { one };
            let mut right = Vec::new();
            for _ in 0..30 {
                right.push((one.committed.len() as u64 + 1, at(IN_2026) + one.now));
                one.append(1);
                one.advance(MINUTE);
            }
            one.log.barrier().unwrap().blocking_wait().unwrap();
            let mut one = if after { crash(one) } else { one };
            assert_eq!(times(&one.log, Start::Oldest), right, "{policy:?} {before} {after}");
            for (n, (_, time)) in right.iter().enumerate() {
                assert_eq!(times(&one.log, Start::At(*time)), right[n..]);
            }
            let reader = ReadOnlyLog::builder(DIR).disk(Arc::new(one.disk.process()));
            let reader = reader.engine(Engine::manual()).open().unwrap();
            let mut stream = reader.stream(Start::At(right[20].1)).unwrap();
            assert_eq!(stream.try_next().unwrap().unwrap().first(), Some(Seq(first + 20)));
            // Stored times count: the log is not open for long.
            one.log.close().unwrap();
            one.now += 45 * MINUTE;
            let one = one.reopen();
            assert_eq!(one.log.oldest(), Seq(first + 15), "{policy:?} {before} {after}");
            one.log.close().unwrap();
        }
    }
}

fn crash(one: Aging) -> Aging {
    one.disk.kill();
    one.disk.power_on();
    one.reopen()
}
