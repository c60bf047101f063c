//! A raise of the floor whose ticket was dropped, and what the log shows meanwhile.
#![allow(clippy::panic)]

use esker_consensus::Mode;
use esker_lab::consensus::{Bid, Setup, SimEnv, Step, Stop};

/// Bug: a raise counted the lowest committed slot above the new floor as durable, although its
/// commit was pending. The statistics showed it as the start of the durable range.
#[test]
fn the_committed_range_shows_durable_commits_only() {
    let bid = Bid { rise: 0, node: 0 };
    let accept = |slot| Step::Accept { slot, bid, len: 0, wait: false };
    let steps = [
        accept(3),
        accept(4),
        Step::CommitBatch { slot: 4, count: 1, wait: true },
        Step::CommitBatch { slot: 3, count: 1, wait: false },
        Step::Install { ahead: 0, wait: false },
    ];
    let mut sim_env = SimEnv::new(Setup::new(Mode::Durable, false), 0);
    // The range is compared after each step.
    sim_env.checks = true;
    if let Err(Stop::Broken(what)) = sim_env.live(&steps).map(drop) {
        panic!("{what}");
    }
}
