//! The same programs as proptest makes them, so that what breaks one is reduced to as few steps
//! and lives as will do.

use esker_consensus::Mode;
use esker_disk::sim::Persist;
use esker_lab::consensus::{Bid, SLOT_COUNT, Setup, SimEnv, Step};
use esker_lab::plan::{How, Plan};
use proptest::collection::vec;
use proptest::prelude::*;

/// The end of a life. Places are given in operations of the disk from the life's beginning on,
/// recovery included; a life that is over before is ended after its last step.
#[derive(Debug, Clone, Copy)]
pub enum End {
    CutBefore(u64, Persist),
    CutDuring(u64, Persist),
    KilledBefore(u64),
    Closed,
}

/// Lives in a row on one disk.
#[derive(Debug, Clone)]
pub struct Case {
    pub setup: Setup,
    pub seed: u64,
    pub lives: Vec<(Vec<Step>, End)>,
}

impl Case {
    /// Lives them all, and looks at everything after every step.
    pub fn run(&self) -> Result<(), String> {
        let mut sim_env = SimEnv::new(self.setup, self.seed);
        sim_env.checks = true;
        for (n, (steps, end)) in self.lives.iter().enumerate() {
            let begin = sim_env.disk.operations();
            let lived = match *end {
                End::CutBefore(at, how) => {
                    sim_env.live_and_die(steps, Plan::before(begin + at, How::Cut(how)))
                }
                End::CutDuring(at, how) => {
                    sim_env.live_and_die(steps, Plan::during(begin + at, How::Cut(how)))
                }
                End::KilledBefore(at) => {
                    sim_env.live_and_die(steps, Plan::before(begin + at, How::Kill))
                }
                End::Closed => sim_env.live_and_close(steps),
            };
            lived.map_err(|what| format!("life {n}: {what}"))?;
        }
        sim_env.live_and_close(&[])
    }
}

fn bid() -> impl Strategy<Value = Bid> {
    let rise = prop_oneof![8 => Just(0i64), 2 => Just(1), 1 => Just(-1), 1 => -3..4i64];
    (rise, 0..2u64).prop_map(|(rise, node)| Bid { rise, node })
}

/// Near the floor more often than far from it.
fn slot() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..8u64, 2 => 0..SLOT_COUNT, 1 => 4090..4100u64]
}

fn step() -> impl Strategy<Value = Step> {
    let wait = || prop::bool::weighted(0.7);
    let len = || prop_oneof![3 => 0..100usize, 1 => 0..3500usize];
    prop_oneof![
        3 => (bid(), wait()).prop_map(|(bid, wait)| Step::Promise { bid, wait }),
        10 => (slot(), bid(), len(), wait())
            .prop_map(|(slot, bid, len, wait)| Step::Accept { slot, bid, len, wait }),
        4 => (slot(), 1..8u64, bid(), len(), wait()).prop_map(|(slot, count, bid, len, wait)| {
            Step::AcceptBatch { slot, count, bid, len, wait }
        }),
        2 => (slot(), bid()).prop_map(|(slot, bid)| Step::AcceptAgain { slot, bid }),
        6 => (slot(), prop::bool::weighted(0.9), wait())
            .prop_map(|(slot, right, wait)| Step::Commit { slot, right, wait }),
        3 => (slot(), 1..8u64, wait())
            .prop_map(|(slot, count, wait)| Step::CommitBatch { slot, count, wait }),
        4 => (0..12u64, wait()).prop_map(|(slot, wait)| Step::CommitThrough { slot, wait }),
        3 => (slot(), bid(), wait()).prop_map(|(slot, bid, wait)| Step::Learn { slot, bid, wait }),
        1 => (slot(), bid()).prop_map(|(slot, bid)| Step::LearnAgain { slot, bid }),
        3 => (0..4u64, wait()).prop_map(|(back, wait)| Step::TruncateBefore { back, wait }),
        1 => (slot(), wait()).prop_map(|(slot, wait)| Step::TruncateFrom { slot, wait }),
        1 => (0..5u64, wait()).prop_map(|(ahead, wait)| Step::Install { ahead, wait }),
        2 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ]
}

fn end() -> impl Strategy<Value = End> {
    let how = prop_oneof![
        3 => Just(Persist::Random),
        1 => Just(Persist::Torn),
        1 => Just(Persist::Nothing),
        1 => Just(Persist::Everything),
    ];
    // Short lives end in recovery, so that it is cut, and cut again.
    let at = || prop_oneof![1 => 0..30u64, 3 => 0..250u64];
    prop_oneof![
        4 => (at(), how.clone()).prop_map(|(at, how)| End::CutBefore(at, how)),
        4 => (at(), how).prop_map(|(at, how)| End::CutDuring(at, how)),
        1 => at().prop_map(End::KilledBefore),
        1 => Just(End::Closed),
    ]
}

/// Cases of up to so many lives of up to so many steps.
pub fn case(lives: usize, steps: usize) -> impl Strategy<Value = Case> {
    let mode = prop_oneof![Just(Mode::Durable), Just(Mode::Volatile)];
    let setup = (mode, prop::bool::weighted(0.7), any::<bool>())
        .prop_map(|(mode, sync_on_commit, small)| Setup { mode, sync_on_commit, small });
    let lives = vec((vec(step(), 0..steps), end()), 1..lives);
    (setup, 0..1u64 << 32, lives).prop_map(|(setup, seed, lives)| Case { setup, seed, lives })
}
