//! Programs: what is done to a log, one step after the other.

use esker_consensus::Ballot;
use esker_testkit::SplitMix64;

/// A ballot, relative to the one that is promised when its step comes: so that most of a long
/// program is neither stale nor a takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bid {
    pub rise: i64,
    pub node: u64,
}

impl Bid {
    pub fn over(self, promised: Ballot) -> Ballot {
        Ballot { number: promised.number.saturating_add_signed(self.rise).max(1), node: self.node }
    }
}

/// An operation of a program. Slots are counted from the first one kept. Where there is a choice,
/// `wait` says whether the ticket is waited for or dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Promise {
        bid: Bid,
        wait: bool,
    },
    Accept {
        slot: u64,
        bid: Bid,
        len: usize,
        wait: bool,
    },
    AcceptBatch {
        slot: u64,
        count: u64,
        bid: Bid,
        len: usize,
        wait: bool,
    },
    /// An accept that is stored, once more; where it is committed, under any ballot.
    AcceptAgain {
        slot: u64,
        bid: Bid,
    },
    Commit {
        slot: u64,
        right: bool,
        wait: bool,
    },
    CommitBatch {
        slot: u64,
        count: u64,
        wait: bool,
    },
    CommitThrough {
        slot: u64,
        wait: bool,
    },
    Learn {
        slot: u64,
        bid: Bid,
        wait: bool,
    },
    LearnAgain {
        slot: u64,
        bid: Bid,
    },
    TruncateBefore {
        back: u64,
        wait: bool,
    },
    TruncateFrom {
        slot: u64,
        wait: bool,
    },
    Install {
        ahead: u64,
        wait: bool,
    },
    Checkpoint,
    /// Reclaims space, with accepts meanwhile.
    ReclaimInterleaved {
        seed: u64,
    },
    /// A promise, and a truncation while its answer is read.
    PromiseInterleaved {
        bid: Bid,
        back: u64,
    },
    Reopen,
    Look,
}

/// Slots that programs use, above the floor.
pub const SLOT_COUNT: u64 = 24;

/// A random program.
pub fn program(len: usize, rng: &mut SplitMix64) -> Vec<Step> {
    (0..len).map(|_| step(rng)).collect()
}

fn step(rng: &mut SplitMix64) -> Step {
    let slot = rng.below(SLOT_COUNT);
    // Rising now and then, and stale now and then.
    let rise = [-1, 0, 0, 0, 0, 0, 0, 1][rng.below(8) as usize];
    let bid = Bid { rise, node: rng.below(2) };
    let len = (rng.below(8) * rng.below(9) * 60) as usize;
    let wait = rng.below(4) > 0;
    match rng.below(44) {
        0..3 => Step::Promise { bid, wait },
        3..14 => Step::Accept { slot, bid, len, wait },
        14..16 => Step::AcceptBatch { slot, count: 1 + rng.below(4), bid, len: len / 4, wait },
        16..24 => Step::Commit { slot, right: rng.below(8) > 0, wait },
        24..26 => Step::CommitBatch { slot, count: 1 + rng.below(6), wait },
        26..28 => Step::CommitThrough { slot, wait },
        28..30 => Step::Learn { slot, bid, wait },
        30..33 => Step::TruncateBefore { back: rng.below(4), wait },
        33 => Step::TruncateFrom { slot, wait },
        34 => Step::Install { ahead: rng.below(5), wait },
        35..37 => Step::Checkpoint,
        37 => Step::Reopen,
        38 => Step::AcceptAgain { slot, bid },
        39 => Step::LearnAgain { slot, bid },
        40 => Step::ReclaimInterleaved { seed: rng.next() },
        41 => Step::PromiseInterleaved { bid, back: rng.below(2) },
        _ => Step::Look,
    }
}
