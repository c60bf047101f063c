//! The operations on a log before it is corrupted.

use std::num::NonZeroU64;
use std::time::Duration;

use esker_disk::sim::Persist;
use esker_log::{Options, Policy, Retention};
use esker_testkit::Rng;

/// How the log is opened, in each of its sessions.
#[derive(Debug, Clone)]
pub struct Config {
    pub policy: Policy,
    pub retention: Retention,
    pub segment_records: u64,
    pub in_flight: u32,
    pub dsync: bool,
    /// Numbers are given by the caller, and some are left out.
    pub sparse: bool,
}

/// One thing done to an open log.
#[derive(Debug, Clone)]
pub enum Op {
    /// Records one by one, each acknowledged before the next.
    Each(Vec<usize>),
    /// Records that are waited for together.
    Together(Vec<usize>),
    Atomic(Vec<usize>),
    Batch(Vec<usize>),
    /// Records that no caller waits for.
    Unwaited(Vec<usize>),
    /// Truncates in front of this part of what is there, of a hundred.
    Truncate(u64),
    /// The engine does what it has put off.
    Run,
    Advance(Duration),
}

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Close,
    Kill,
    Power(Persist),
    /// Power fails so many operations after the start of this step.
    Midway(u64, u64, Persist),
    /// The process dies so.
    KillMidway(u64, u64),
}

#[derive(Debug, Clone)]
pub struct Session {
    pub ops: Vec<Op>,
    pub end: End,
    /// A record is corrupted after the clean close, and the log repaired.
    pub repair: bool,
}

pub fn config(rng: &mut Rng) -> Config {
    let policy = match rng.below(8) {
        0..3 => Policy::Always,
        3 => Policy::Batch(NonZeroU64::new(1 + rng.below(4)).unwrap()),
        4 => Policy::Periodic(Duration::from_millis(10)),
        _ => Policy::OsBuffered,
    };
    let mut retention = Retention::NONE;
    match rng.below(6) {
        0 => retention.segments = Some(2 + rng.below(3)),
        1 => retention.records = Some(4 + rng.below(20)),
        _ => {}
    }
    Config {
        policy,
        retention,
        segment_records: 2 + rng.below(12),
        in_flight: 1 + rng.below(3) as u32,
        dsync: rng.percent(70),
        sparse: rng.percent(25),
    }
}

impl Config {
    pub fn apply(&self, options: &mut Options) {
        options.policy = self.policy;
        options.retention = self.retention;
        options.segment_records = Some(self.segment_records);
        options.commits_in_flight = self.in_flight;
        options.dsync = self.dsync;
        options.segment_size = 64 << 10;
        options.buffer_size = 16 << 10;
        options.buffers = 3;
        options.tail_cache = 8 << 10;
    }
}

pub fn sessions(rng: &mut Rng) -> Vec<Session> {
    (0..1 + rng.below(4)).map(|_| session(rng)).collect()
}

fn session(rng: &mut Rng) -> Session {
    let ops: Vec<Op> = (0..1 + rng.below(9)).map(|_| op(rng)).collect();
    let persist =
        [Persist::Random, Persist::Torn, Persist::Nothing, Persist::Everything][rng.index(4)];
    let at = rng.below(ops.len() as u64);
    let end = match rng.below(10) {
        0..4 => End::Close,
        4..6 => End::Kill,
        6..8 => End::Power(persist),
        8 => End::Midway(at, rng.below(8), persist),
        _ => End::KillMidway(at, rng.below(8)),
    };
    Session { ops, end, repair: end == End::Close && rng.percent(20) }
}

fn op(rng: &mut Rng) -> Op {
    match rng.below(22) {
        0..6 => Op::Each(lens(rng, 5)),
        6..10 => Op::Together(lens(rng, 12)),
        10..13 => Op::Atomic(lens(rng, 4)),
        13..15 => Op::Batch(lens(rng, 6)),
        15 => Op::Unwaited(lens(rng, 3)),
        16 => Op::Truncate(rng.below(100)),
        17..20 => Op::Run,
        _ => Op::Advance(Duration::from_millis(20)),
    }
}

fn lens(rng: &mut Rng, most: u64) -> Vec<usize> {
    (0..1 + rng.below(most))
        .map(|_| match rng.below(16) {
            0 => 0,
            1..10 => 12 + rng.index(90),
            10..14 => 12 + rng.index(1500),
            _ => 3000 + rng.index(6000),
        })
        .collect()
}
