//! Programs: what is done to a manager, one step after the other.

use esker_testkit::SplitMix64;

use crate::consensus::{self, Bid};

/// An operation of a program. Keys have numbers. Slots of snapshots are counted back from the last
/// decided one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Steps of one log, which is opened or created.
    Log {
        key: u64,
        steps: Vec<consensus::Step>,
    },
    /// Decides the next slots of a log.
    Decide {
        key: u64,
        count: u64,
    },
    Snapshot {
        key: u64,
        back: u64,
        len: usize,
        /// The most bytes that are written at a time; all at once if 0.
        part: usize,
    },
    Keep {
        key: u64,
        count: usize,
    },
    TruncateThrough {
        key: u64,
        back: u64,
    },
    Restore {
        key: u64,
    },
    /// Sends the newest snapshot of a log to another one. Each attempt but the last is interrupted
    /// after so many bytes.
    Ship {
        from: u64,
        to: u64,
        interrupted: Vec<u64>,
    },
    /// Flips a bit of the newest snapshot, where an older one takes its place.
    Corrupt {
        key: u64,
        bit: u64,
    },
    Reclaim {
        key: u64,
    },
    Remove {
        key: u64,
    },
    Close {
        key: u64,
    },
    CompactRegistry,
    /// Copies all logs, with accepts meanwhile.
    Backup {
        seed: u64,
    },
    Reopen,
}

/// Keys that programs use. Fewer logs stay open.
pub const KEY_COUNT: u64 = 4;

/// A snapshot of more than two chunks.
const LARGE_SNAPSHOT_BYTES: u64 = 4 << 20;

/// A random program.
pub fn program(len: usize, rng: &mut SplitMix64) -> Vec<Step> {
    let mut steps = Vec::new();
    while steps.len() < len {
        let key = rng.below(KEY_COUNT);
        match rng.below(20) {
            0 => steps.extend(corruption(key, rng)),
            1 => {
                // There is something to lose.
                steps.extend([Step::Decide { key, count: 1 + rng.below(3) }, Step::Remove { key }]);
            }
            _ => steps.push(step(rng)),
        }
    }
    steps
}

/// Two snapshots, of which the newer one is corrupted, and what must not be dropped because of it.
fn corruption(key: u64, rng: &mut SplitMix64) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..2 {
        steps.push(Step::Decide { key, count: 1 + rng.below(3) });
        steps.push(Step::Snapshot { key, back: 0, len: 1 + rng.index(500), part: 0 });
    }
    steps.push(Step::Corrupt { key, bit: rng.next() });
    steps.push(match rng.percent(50) {
        true => Step::Keep { key, count: 1 + rng.index(2) },
        false => Step::TruncateThrough { key, back: rng.below(2) },
    });
    steps
}

fn step(rng: &mut SplitMix64) -> Step {
    let key = rng.below(KEY_COUNT);
    let back = rng.below(4);
    match rng.below(50) {
        0..12 => Step::Log { key, steps: (0..1 + rng.below(3)).map(|_| log_step(rng)).collect() },
        12..20 => Step::Decide { key, count: 1 + rng.below(5) },
        20..27 => {
            let len = if rng.percent(4) {
                LARGE_SNAPSHOT_BYTES + rng.below(1 << 20)
            } else {
                rng.below(9000)
            };
            let part = if rng.percent(50) { 0 } else { 1 + rng.index(70_000) };
            Step::Snapshot { key, back, len: len as usize, part }
        }
        27..30 => Step::Keep { key, count: 1 + rng.index(3) },
        30..33 => Step::TruncateThrough { key, back },
        33..35 => Step::Restore { key },
        35..38 => {
            let interrupted = (0..rng.below(3)).map(|_| break_at(rng)).collect();
            Step::Ship {
                from: key,
                to: (key + 1 + rng.below(KEY_COUNT - 1)) % KEY_COUNT,
                interrupted,
            }
        }
        38..40 => Step::Corrupt { key, bit: rng.next() },
        40 => Step::Reclaim { key },
        41..44 => Step::Remove { key },
        44 => Step::Close { key },
        45..47 => Step::CompactRegistry,
        47..49 => Step::Backup { seed: rng.next() },
        _ => Step::Reopen,
    }
}

/// A place within the header, the first chunk, or later ones.
fn break_at(rng: &mut SplitMix64) -> u64 {
    let span = rng.pick(&[5000, 12_000, 12_000, LARGE_SNAPSHOT_BYTES]);
    rng.below(span)
}

/// A step of one log. Only a snapshot allows its entries to be truncated.
fn log_step(rng: &mut SplitMix64) -> consensus::Step {
    use consensus::Step as S;
    if rng.percent(10) {
        return S::Promise { bid: Bid { rise: 1, node: rng.below(2) }, wait: true };
    }
    loop {
        match consensus::program(1, rng).remove(0) {
            S::TruncateBefore { .. }
            | S::Install { .. }
            | S::ReclaimInterleaved { .. }
            | S::PromiseInterleaved { .. }
            | S::Reopen => {}
            step => return step,
        }
    }
}
