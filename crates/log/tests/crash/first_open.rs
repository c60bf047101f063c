//! The process dies, or power fails, at every operation of the very first opening; then another
//! process opens the log, appends, waits, and power fails.
//!
//! Guards: a directory whose own name was never synced, because the process that made it died and
//! the next found it there; and half-made files that every later opening fails on.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_disk::sim::Persist;

use crate::case::case;
use esker_lab::log::config::{Config, policies};
use esker_lab::log::sim_env::SimEnv;
use esker_lab::log::workload::{Step, Then};
use esker_lab::plan::{How, PERSISTS, Plan};

fn hows() -> impl Iterator<Item = How> {
    PERSISTS.into_iter().map(How::Cut).chain([How::Kill])
}

fn open_again(config: Config, first: Plan) -> Result<(), String> {
    let mut sim_env = SimEnv::new(config, 1);
    sim_env.live_and_die(&[], first)?;
    let steps = vec![Step::Append { len: 300, then: Then::Wait }; 2];
    let life = sim_env.live(&steps).map_err(|stop| format!("{stop:?}"))?;
    sim_env.die(life, How::Cut(Persist::Nothing))?;
    sim_env.live_and_close(&steps)
}

#[test]
fn records_the_second_open_reports_durable_survive() {
    for policy in policies() {
        let config = Config::new(policy);
        let mut whole = SimEnv::new(config, 1);
        if let Err(stop) = whole.open() {
            panic!("{config}: {stop:?}");
        }
        for operation in 0..whole.disk.operations() {
            for how in hows() {
                for plan in [Plan::before(operation, how), Plan::during(operation, how)] {
                    let name = format!("{config} {plan}");
                    let test = "crash::first_open::records_the_second_open_reports_durable_survive";
                    let Some(_case) = case(test, &name) else { continue };
                    if let Err(error) = open_again(config, plan) {
                        panic!("{name}: {error}");
                    }
                }
            }
        }
    }
}
