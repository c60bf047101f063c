//! Programs over a manager of consensus logs on the simulated disk, with fewer open logs than keys,
//! and a power that fails anywhere.
//!
//! Each log has the steps, the model and the checks of [`crate::consensus`]. Beyond these:
//!
//! - A key whose addition was acknowledged is there, and one whose removal was is not; nor is there
//!   a log without a key.
//! - A snapshot that was acknowledged and not removed is there and whole, byte by byte. One that is
//!   not whole is there only where the program flipped a bit of it.
//! - A floor is covered by a whole snapshot, and `restore` hands over that snapshot and the entries
//!   after it.
//! - A backup is no manager, or all logs as of one moment.
#![allow(clippy::unwrap_used, clippy::panic)]

mod backup;
mod copies;
mod manager_checks;
mod manager_program;
mod manager_subject;
mod pipe;
mod snapshots;
mod steps;
mod stored;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use esker_consensus::{LogGuard, LogManager, OpenError, Options};
use esker_disk::sim::SimDisk;
use esker_log::Engine;
use esker_testkit::{keep_freed_memory, mix};

use crate::consensus;
pub use crate::consensus::Setup;
use crate::interleaving::Interleaving;
use crate::plan::{LifeResult, Plan, Stop};
use crate::survival::Survival;
use copies::BackupCopy;
pub use manager_program::{Step, program};
use stored::SnapshotModel;

/// The directory of the manager.
const DIR: &str = "/manager";
/// Open logs. A step uses two at most.
const MAX_OPEN: usize = 2;

/// A disk, a manager on it now and then, and what must be in it.
pub struct SimEnv {
    disk: SimDisk,
    setup: Setup,
    keys: BTreeMap<Vec<u8>, Key>,
    /// The number of logs and snapshots made so far.
    made: u64,
    seed: u64,
    interleaving: Interleaving,
    copies: Vec<BackupCopy>,
    /// Whether the last life ended with a crash that no opening has looked at.
    crashed: bool,
    /// The writes of each key that recovery found, while it was not looked at as a whole.
    recovering: BTreeMap<Vec<u8>, Survival>,
    /// The writes that survived each crash. A write is a slot of a log that holds an accepted
    /// value.
    survivals: Vec<Survival>,
}

/// A key, and what must be in its log.
struct Key {
    standing: Standing,
    log: consensus::SimEnv,
    snapshots: SnapshotModel,
    /// Whether its log was open after the last call that used it.
    was_open: bool,
}

/// The state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The addition of the key is not acknowledged.
    Adding,
    Kept,
    /// The removal of the key is not acknowledged.
    Removing,
}

struct Life {
    manager: LogManager,
    engine: Engine,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

/// The key of this number.
fn key(number: u64) -> Vec<u8> {
    format!("table/{number}").into_bytes()
}

/// A log of the manager as the programs of a single log use it.
fn of_log(guard: &LogGuard) -> consensus::Life {
    consensus::Life::managed((**guard).clone())
}

impl SimEnv {
    fn new(setup: Setup, seed: u64) -> Self {
        keep_freed_memory();
        Self {
            disk: SimDisk::new(seed),
            setup,
            keys: BTreeMap::new(),
            made: 0,
            seed,
            interleaving: Interleaving::default(),
            copies: Vec::new(),
            crashed: false,
            recovering: BTreeMap::new(),
            survivals: Vec::new(),
        }
    }

    /// A number that no other call returns.
    fn fresh(&mut self) -> u64 {
        self.made += 1;
        mix(self.seed, self.made)
    }

    fn stop<T>(&self, error: &dyn Debug, what: &str) -> LifeResult<T> {
        if self.disk.is_on() {
            Err(Stop::Broken(format!("{what}: {error:?}")))
        } else {
            Err(Stop::Ended)
        }
    }

    /// Opens the manager in a directory, without a look at it.
    fn opened(&self, dir: &str, must_exist: bool) -> Result<Life, OpenError> {
        let engine = Engine::manual();
        let disk = self.interleaving.disk(Arc::new(self.disk.process()));
        let mut options = Options::on(Arc::new(disk));
        options.mode = self.setup.mode;
        options.sync_on_commit = self.setup.sync_on_commit;
        options.log.segment_size = 64 << 10;
        options.log.engine = Some(engine.clone());
        options.checkpoint_every = 1024;
        options.log.reserve = Some(128 << 10);
        options.mutable_size = self.setup.room();
        options.cache_size = if self.setup.small { 4096 } else { 64 << 10 };
        let builder = LogManager::builder(dir).options(options);
        match builder.max_open(MAX_OPEN).must_exist(must_exist).open() {
            Ok(manager) => Ok(Life { manager, engine }),
            Err(error) => {
                engine.stop();
                Err(error)
            }
        }
    }

    fn open(&mut self) -> LifeResult<Life> {
        match self.opened(DIR, false) {
            Ok(life) => {
                self.recovered(&life)?;
                Ok(life)
            }
            Err(error) => self.stop(&error, "opening"),
        }
    }

    /// Opens, and goes through the steps until power fails.
    fn live(&mut self, steps: &[Step]) -> LifeResult<Life> {
        let mut life = self.open()?;
        for (n, step) in steps.iter().enumerate() {
            let done = self.step(&mut life, step);
            if !self.disk.is_on() {
                return Err(Stop::Ended);
            }
            done.map_err(|stop| match stop {
                Stop::Broken(what) => Stop::Broken(format!("step {n} {step:?}: {what}")),
                Stop::Ended => Stop::Broken(format!("step {n} {step:?}: it ended with power on")),
            })?;
        }
        Ok(life)
    }

    /// A life that ends as planned, or after its last step where the plan names a later place.
    fn live_and_die(&mut self, steps: &[Step], plan: Plan) -> Result<(), String> {
        let disk = self.disk.clone();
        plan.end(&disk, || self.live(steps))?;
        self.crashed = true;
        for key in self.keys.values_mut() {
            key.log.crashed = true;
            key.was_open = false;
        }
        self.disk.power_on();
        Ok(())
    }

    /// The last life: goes through the steps, closes, and finds everything again.
    fn live_and_close(&mut self, steps: &[Step]) -> Result<(), String> {
        let reported = |stop: Stop| format!("{stop}");
        let mut life = self.live(steps).map_err(reported)?;
        self.look_at_all(&life).map_err(reported)?;
        self.reopen(&mut life).map_err(reported)?;
        self.look_at_all(&life).map_err(reported)?;
        self.check_copies().map_err(reported)
    }
}
