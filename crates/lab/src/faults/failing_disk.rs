//! Calls of the disk that fail, once or for some time, and a crash soon after.

use esker_log::Policy;
use esker_testkit::{SplitMix64, mix};

use super::trial::Trial;
use crate::log::config::Config;
use crate::log::faults::lives_with_faults;
use crate::log::sim_env::SimEnv;
use crate::outcome::Run;

pub(super) struct FailingDisk;

impl Trial for FailingDisk {
    fn lives(policy: Policy, run: &mut Run) -> Result<(), String> {
        let mut rng = SplitMix64::new(mix(run.seed, 77));
        let config = Config { policy, ..Config::any(&mut rng) };
        let mut sim_env = SimEnv::new(config, run.seed);
        let lived = lives_with_faults(&mut sim_env, &mut rng, &mut run.cuts);
        run.survivals = sim_env.survivals;
        lived
    }
}
