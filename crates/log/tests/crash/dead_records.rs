//! A record that a crash took stays dead, also when a new one ends exactly where it begins, and the
//! log crashes again.
//!
//! Guards: a scan that runs on from the last record of this life into one of an earlier use, which
//! is whole, bears a checksum and is at the right place. Records end on the borders of blocks
//! and sectors; the first life's last commits persist in every subset.
#![allow(clippy::panic)] // What tests share fails loudly.

use esker_disk::sim::Persist;

use crate::case::{case, is_alone};
use esker_lab::log::config::{Config, SECTORS, WAYS, policies};
use esker_lab::log::sim_env::SimEnv;
use esker_lab::log::workload::{Step, Then};
use esker_lab::plan::{How, PERSISTS};

/// Payloads whose units of one record end on the border of a block, or of its first, second and
/// last sector, or one byte beside it.
const SIZES: [usize; 7] = [4096 - 88, 512 - 88, 503, 1024 - 88, 4096 - 87, 8192 - 88, 20_480 - 88];

fn appends(count: usize, len: usize, then: Then) -> Vec<Step> {
    vec![Step::Append { len, then }; count]
}

/// Some durable records, then some in units of their own that are written and not synced.
fn first_life(len: usize, dead: usize) -> Vec<Step> {
    let mut steps = appends(2, len, Then::Wait);
    for _ in 0..dead {
        steps.extend(appends(1, len, Then::Drop));
        steps.push(Step::Run);
    }
    steps
}

/// Lives of the same shape, each of which ends with the power: the next life writes to the blocks
/// that hold, or held before recovery, what the one before it lost.
fn same_shape_again(config: Config, seed: u64, len: usize) -> Result<usize, String> {
    let mut sim_env = SimEnv::new(config, seed);
    let mut lost = 0;
    for n in 0..5 {
        let reported = |stop| format!("life {n}: {stop:?}");
        let mut life = sim_env.open().map_err(reported)?;
        lost += life.lost.len();
        sim_env.go(&mut life, &first_life(len, 4)).map_err(reported)?;
        sim_env.die(life, How::Cut(PERSISTS[(seed as usize + n) % 4]))?;
    }
    sim_env.live_and_close(&appends(1, len, Then::Wait))?;
    Ok(lost)
}

#[test]
fn cut_records_never_return() {
    let test = "crash::dead_records::cut_records_never_return";
    let mut lost = 0;
    for policy in policies() {
        for sector in SECTORS {
            for way in WAYS {
                for len in SIZES {
                    for seed in 0..5 {
                        let config = Config::new(policy).sector(sector).way(way);
                        let name = format!("{config} seed {seed}, {len} bytes");
                        let Some(_case) = case(test, &name) else { continue };
                        match same_shape_again(config, seed, len) {
                            Ok(some) => lost += some,
                            Err(error) => panic!("{name}: {error}"),
                        }
                    }
                }
            }
        }
    }
    assert!(lost > 1000 || is_alone(), "only {lost} records died");
}

/// The same, and the crash falls into the recovery that cuts the dead records off.
#[test]
fn records_an_interrupted_recovery_would_cut_never_return() {
    let test = "crash::dead_records::records_an_interrupted_recovery_would_cut_never_return";
    for policy in policies() {
        for len in [SIZES[0], SIZES[2]] {
            let config = Config::new(policy).way((false, false));
            for operation in 0..40 {
                for persist in [Persist::Random, Persist::Everything, Persist::Nothing] {
                    let name = format!("{config} {len} bytes, {operation} {persist:?}");
                    let Some(_case) = case(test, &name) else { continue };
                    let lived = cut_in_recovery(config, len, operation, persist);
                    assert_eq!(lived, Ok(()), "{name}");
                }
            }
        }
    }
}

fn cut_in_recovery(
    config: Config,
    len: usize,
    operation: u64,
    persist: Persist,
) -> Result<(), String> {
    use esker_lab::plan::Plan;
    let mut sim_env = SimEnv::new(config, operation);
    let life = sim_env.live(&first_life(len, 4)).map_err(|stop| format!("{stop:?}"))?;
    sim_env.die(life, How::Cut(Persist::Random))?;
    let plan = Plan::during(sim_env.disk.operations() + operation, How::Cut(persist));
    sim_env.live_and_die(&first_life(len, 3), plan)?;
    sim_env.live_and_die(&first_life(len, 2), Plan::during(u64::MAX, How::Cut(persist)))?;
    sim_env.live_and_close(&appends(1, len, Then::Wait))
}
