//! Faults, and their distribution.

use esker_disk::Op;
use esker_disk::sim::{CutPoint, Effect, Fault as DiskFault, Persist};
use esker_testkit::SplitMix64;

use crate::machine::START_TIME_NS;
use crate::network::LinkConditions;

/// A fault. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill {
        node: u64,
        back_after: u64,
    },
    PowerCut {
        node: u64,
        persist: Persist,
        back_after: u64,
    },
    /// A power cut in the middle of one of the next operations of the disk, also of a recovery.
    PowerCutDuring {
        node: u64,
        operation: u64,
        back_after: u64,
    },
    /// A power cut of all nodes at once.
    PowerCutOfAll {
        back_after: u64,
    },
    /// The node's disk fails an operation.
    DiskFails {
        node: u64,
        sync: bool,
    },
    /// The node's disk is slow from now on.
    DiskIsSlow {
        node: u64,
        latency: u64,
    },
    /// The node is suspended.
    Pause {
        node: u64,
        time: u64,
    },
    /// The node is cut off: no message comes from it or reaches it.
    CutOff {
        node: u64,
    },
    /// The messages of one node do not reach another one.
    CutOneWay {
        from: u64,
        to: u64,
    },
    /// The messages of one node to another one take `by` milliseconds more.
    SlowWay {
        from: u64,
        to: u64,
        by: u64,
    },
    Heal,
    Reset,
    Rough,
    Calm,
    /// The wall clock of one node, or of all, steps by `by` milliseconds.
    ClockSteps {
        node: Option<u64>,
        by: i64,
    },
    /// The wall clock shows this time from now on, in milliseconds since 1970.
    ClockShows {
        node: Option<u64>,
        at: i64,
    },
    /// An operator makes epochs follow the leader's clock at once.
    FollowClock,
    /// The node restarts with another round-trip time.
    RoundTrip {
        node: u64,
        ms: u64,
    },
    Transfer {
        to: u64,
    },
    /// The leader hands over, and is cut off while it does.
    TransferAndCutOff {
        to: u64,
        until_cut: u64,
    },
    /// Answers to the leader are late, and then it is cut off.
    LateAnswers {
        by: u64,
        until_cut: u64,
    },
    /// A node does not hear the leader and campaigns. Then the voters restart, and the leader is
    /// cut off.
    Restarts {
        until_restart: u64,
        back_after: u64,
    },
    LeaseReads {
        on: bool,
    },
}

const HOUR_MS: i64 = 3_600_000;
const YEAR_MS: i64 = 8766 * HOUR_MS;

impl Fault {
    /// Picks a fault of any kind, for a cluster of nodes 1 to `nodes`.
    pub(crate) fn any(random: &mut SplitMix64, nodes: u64, switches: bool) -> Self {
        let node = 1 + random.below(nodes);
        let other = 1 + (node + random.below(nodes - 1)) % nodes;
        // Also shorter than a lease.
        let longest_down = random.pick(&[20, 1_000]);
        let back_after = 1 + random.below(longest_down);
        match random.below(100) {
            0..12 => Self::Kill { node, back_after },
            12..20 => {
                let persist = random.pick(&[Persist::Random, Persist::Nothing, Persist::Torn]);
                Self::PowerCut { node, persist, back_after }
            }
            20..28 => Self::PowerCutDuring { node, operation: random.below(40), back_after },
            28..30 => Self::PowerCutOfAll { back_after },
            30..34 => Self::DiskFails { node, sync: random.percent(50) },
            34..38 => {
                let latency = random.pick(&[1, 5, 30, 150]);
                Self::DiskIsSlow { node, latency }
            }
            38..46 => Self::Pause { node, time: 10 + random.below(500) },
            46..54 => Self::CutOff { node },
            54..60 => Self::CutOneWay { from: node, to: other },
            60..64 => Self::SlowWay { from: node, to: other, by: 20 + random.below(150) },
            64..70 => Self::Heal,
            70..75 => Self::Reset,
            75..78 => Self::Rough,
            78..81 => Self::Calm,
            81..87 => {
                let by = random.pick(&[-HOUR_MS, -1_000, 5_000, HOUR_MS]);
                Self::ClockSteps { node: random.percent(70).then_some(node), by }
            }
            87..89 => Self::RoundTrip { node, ms: random.pick(&[5, 10, 20]) },
            89..91 => Self::Transfer { to: node },
            91..94 => Self::TransferAndCutOff { to: node, until_cut: random.below(40) },
            94..96 => {
                Self::LateAnswers { by: 100 + random.below(250), until_cut: 1 + random.below(60) }
            }
            96..98 => Self::Restarts {
                until_restart: 60 + random.below(150),
                back_after: 1 + random.below(15),
            },
            _ if switches => Self::LeaseReads { on: random.percent(60) },
            _ => Self::Heal,
        }
    }

    /// Picks a fault of clocks: a clock that is set to any time from 1960 to 2600, or within two
    /// years, or an operator that believes it.
    pub(crate) fn any_clock_fault(random: &mut SplitMix64, nodes: u64) -> Self {
        let mut from = |first: i64, years: u64| first + random.below(years * YEAR_MS as u64) as i64;
        let now = (START_TIME_NS / 1_000_000).cast_signed();
        let (anywhere, near) = (from(-10 * YEAR_MS, 640), from(now - 2 * YEAR_MS, 4));
        let node = random.percent(70).then_some(1 + random.below(nodes));
        match random.below(10) {
            0..6 => Self::ClockShows { node, at: anywhere },
            6..8 => Self::ClockShows { node, at: near },
            _ => Self::FollowClock,
        }
    }
}

pub(crate) const ROUGH_CONDITIONS: LinkConditions = LinkConditions { latency: (1, 40), lost: 30 };

pub(crate) fn power_cut_during(operation: u64) -> CutPoint {
    CutPoint::During(operation)
}

pub(crate) fn failing_disk(sync: bool) -> DiskFault {
    DiskFault::on(if sync { Op::Sync } else { Op::Write }, Effect::Io).nth(1)
}
