//! No durable block of a segment is written over while it is in the log: not by commits, not by
//! blocks prewritten ahead of them, not by recovery.
//!
//! Guards contract 2. A torn write over a durable block would be corruption that no checksum mends;
//! the other suites see it only when a cut falls right there.

use esker_disk::Op;
use esker_testkit::{SplitMix64, mix};

use crate::case::{case, is_alone};
use esker_lab::log::config::{Config, segments};
use esker_lab::log::history::History;
use esker_lab::log::sim_env::SimEnv;
use esker_lab::log::workload::{Sizes, workload};
use esker_lab::plan::Plan;

fn watched_lives(config: Config, seed: u64, history: &History) -> Result<(), String> {
    let mut rng = SplitMix64::new(mix(seed, 9));
    let mut sim_env = SimEnv::new(config, seed);
    for _ in 0..3 {
        // Only the disk knows what a cut left durable: the history starts without files.
        sim_env.history = Some(history.without_files());
        let steps = workload(24, Sizes::Moderate, &mut rng);
        let plan = Plan::within(&sim_env.disk, 400, &mut rng);
        sim_env.live_and_die(&steps, plan)?;
    }
    sim_env.history = Some(history.without_files());
    sim_env.live_and_close(&workload(20, Sizes::Moderate, &mut rng))
}

#[test]
fn a_durable_block_is_never_written_over() {
    let test = "crash::durable_blocks::a_durable_block_is_never_written_over";
    let mut writes = 0;
    for config in Config::every() {
        for retention in [config.retention, segments(2)] {
            for seed in 0..6 {
                let config = config.retention(retention);
                let name = format!("{config} seed {seed}");
                let Some(_case) = case(test, &name) else { continue };
                let history = History::default();
                let lived = watched_lives(config, seed, &history);
                assert_eq!(lived, Ok(()), "{name}");
                assert!(history.edit().is_empty(), "{name}: {:?}", history.edit());
                writes += history.events().iter().filter(|event| event.op == Op::Write).count();
            }
        }
    }
    assert!(writes > 10_000 || is_alone(), "{writes} writes");
}
