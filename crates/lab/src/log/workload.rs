//! The steps of a program that uses a log, drawn by chance.

use std::time::Duration;

use esker_testkit::SplitMix64;

use super::config::{SEGMENT_BYTES, UNIT_BYTES};

/// The use of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Wait,
    Drop,
    /// Looked at later, or never.
    Keep,
}

/// A step of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Append {
        len: usize,
        then: Then,
    },
    /// A record with its own number, this much above the next.
    Numbered {
        gap: u64,
        len: usize,
        then: Then,
    },
    Batch {
        lens: Vec<usize>,
        atomic: bool,
        /// `None`: the log gives the numbers.
        gap: Option<u64>,
        then: Then,
    },
    /// A record that does not follow the last one.
    Misnumbered,
    Flush {
        then: Then,
    },
    /// Waits for all tickets that were kept.
    WaitForTickets,
    /// Drops so many of a hundred durable records.
    Truncate {
        percent: u64,
    },
    /// The engine does what is queued.
    Run,
    /// The engine's clock continues.
    Advance(Duration),
    /// Compares everything that can be read.
    Read,
    /// A clean close, and the next opening.
    Reopen,
}

/// How large the records are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// Up to 20 KB, seldom larger than a segment.
    Mixed,
    /// Up to 20 KB.
    Moderate,
    /// A few bytes.
    Small,
}

/// Payloads with which a unit of one record ends on the border of a block or a sector: header 72,
/// record header 16.
const BORDERS: [usize; 6] = [4096 - 88, 512 - 88, 1024 - 88, 8192 - 88, 4096 - 88 - 512, 0];

impl Sizes {
    pub fn draw(self, rng: &mut SplitMix64) -> usize {
        let small = |rng: &mut SplitMix64| rng.index(300);
        match (self, rng.below(100)) {
            (Sizes::Small, _) | (_, 0..50) => small(rng),
            (_, 50..65) => rng.index(5000),
            (_, 65..75) => rng.pick(&BORDERS),
            (Sizes::Mixed, 75..79) => SEGMENT_BYTES as usize + rng.index(30_000),
            _ => UNIT_BYTES as usize + rng.index(12_000),
        }
    }
}

/// A number of steps. Most write; all kinds come.
pub fn workload(steps: usize, sizes: Sizes, rng: &mut SplitMix64) -> Vec<Step> {
    (0..steps).map(|_| step(sizes, rng)).collect()
}

fn step(sizes: Sizes, rng: &mut SplitMix64) -> Step {
    let then = match rng.below(10) {
        0..5 => Then::Wait,
        5..9 => Then::Drop,
        _ => Then::Keep,
    };
    match rng.below(100) {
        0..45 => Step::Append { len: sizes.draw(rng), then },
        45..53 => Step::Numbered { gap: rng.below(4) * 10, len: sizes.draw(rng), then },
        53..71 => {
            let records = 1 + rng.index(6);
            Step::Batch {
                lens: (0..records).map(|_| sizes.draw(rng).min(20_000)).collect(),
                atomic: rng.percent(50),
                gap: rng.percent(30).then(|| rng.below(5)),
                then,
            }
        }
        71..73 => Step::Misnumbered,
        73..78 => Step::Flush { then },
        78..80 => Step::WaitForTickets,
        80..83 => Step::Truncate { percent: rng.pick(&[0, 20, 50, 50, 90, 100]) },
        83..90 => Step::Run,
        90..94 => Step::Advance(Duration::from_millis(1 + rng.below(15))),
        94..98 => Step::Read,
        _ => Step::Reopen,
    }
}
