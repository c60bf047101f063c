//! The base of the crash suite: programs over a consensus log on the simulated disk, a model of
//! what must be there, and a power that fails anywhere.
//!
//! One sentence is checked, slot by slot: **acknowledged ⊆ recovered ⊆ attempted**. A promise that
//! was acknowledged is there, and so is an accept or a higher one of the same slot; a commit that
//! was acknowledged is there with its value; nothing is there that was never tried; and a slot that
//! was ever seen committed never changes. What was waited for makes everything before it durable,
//! tickets that were dropped among it. The floor and cuts of the suffix are among that: see
//! `floor_model`.
//!
//! Everything runs on the test's thread with a manual engine: a case is fixed by its seed and the
//! place where power fails.
#![allow(clippy::unwrap_used, clippy::panic)]

mod checks;
mod consensus_subject;
mod floor_model;
mod recovery_checks;
mod setup;
pub(crate) mod slot_model;
mod slot_program;
mod steps;

use std::fmt::Debug;
use std::sync::Arc;

use esker_consensus::{ConsensusLog, Options};
use esker_disk::sim::SimDisk;
use esker_log::Engine;
use esker_testkit::{SplitMix64, keep_freed_memory};

use crate::interleaving::Interleaving;
pub use crate::plan::{LifeResult, Stop};
use crate::plan::{Plan, broken, ensure};
use crate::survival::Survival;
pub use setup::Setup;
use slot_model::Model;
pub use slot_program::{Bid, SLOT_COUNT, Step, program};

pub const DIR: &str = "/consensus";

/// A disk, a log on it now and then, and what must be in it.
pub struct SimEnv {
    pub disk: SimDisk,
    pub setup: Setup,
    /// Whether everything is looked at after every step, and the records at every opening.
    pub checks: bool,
    pub(crate) model: Model,
    nonce: u64,
    interleaving: Interleaving,
    /// Whether the last life ended with a crash that no opening has looked at.
    pub(crate) crashed: bool,
    /// The writes that survived each crash. A write is a slot that holds an accepted value.
    pub survivals: Vec<Survival>,
}

pub struct Life {
    pub log: ConsensusLog,
    /// None for a log of a manager, which has the engine.
    engine: Option<Engine>,
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(engine) = &self.engine {
            engine.stop();
        }
    }
}

impl Life {
    /// A log that a manager has open.
    pub(crate) fn managed(log: ConsensusLog) -> Self {
        Self { log, engine: None }
    }
}

impl SimEnv {
    pub fn new(setup: Setup, seed: u64) -> Self {
        Self::on(SimDisk::new(seed), setup, seed << 20)
    }

    /// A log that is new on this disk. Its values are made from the numbers after `nonce`.
    pub(crate) fn on(disk: SimDisk, setup: Setup, nonce: u64) -> Self {
        keep_freed_memory();
        Self {
            disk,
            setup,
            checks: false,
            model: Model::new(),
            nonce,
            interleaving: Interleaving::default(),
            crashed: false,
            survivals: Vec::new(),
        }
    }

    pub(crate) fn value(&mut self, len: usize) -> Vec<u8> {
        self.nonce += 1;
        let mut rng = SplitMix64::new(self.nonce);
        let mut value = self.nonce.to_le_bytes().to_vec();
        value.extend((0..len).map(|_| rng.next() as u8));
        value
    }

    fn stop<T>(&self, error: &dyn Debug, what: &str) -> LifeResult<T> {
        if self.disk.is_on() {
            Err(Stop::Broken(format!("{what}: {error:?}")))
        } else {
            Err(Stop::Ended)
        }
    }

    pub fn open(&mut self) -> LifeResult<Life> {
        let engine = Engine::manual();
        let disk = self.interleaving.disk(Arc::new(self.disk.process()));
        let mut options = Options::on(Arc::new(disk));
        options.mode = self.setup.mode;
        options.sync_on_commit = self.setup.sync_on_commit;
        options.log.segment_size = 64 << 10;
        options.log.engine = Some(engine.clone());
        options.checkpoint_every = 1024;
        options.mutable_size = self.setup.room();
        if self.setup.small {
            options.cache_size = 4096;
        }
        match ConsensusLog::builder(DIR).options(options).open() {
            Ok(log) => {
                let life = Life { log, engine: Some(engine) };
                self.recovered(&life)?;
                Ok(life)
            }
            Err(error) => {
                engine.stop();
                self.stop(&error, "opening")
            }
        }
    }

    /// Opens, and goes through the steps until power fails.
    pub fn live(&mut self, steps: &[Step]) -> LifeResult<Life> {
        let mut life = self.open()?;
        for (n, step) in steps.iter().enumerate() {
            let mut reported = self.step(&mut life, step);
            if reported.is_ok() && self.checks {
                reported = self.look(&life);
            }
            if !self.disk.is_on() {
                return Err(Stop::Ended);
            }
            reported.map_err(|stop| match stop {
                Stop::Broken(what) => Stop::Broken(format!("step {n} {step:?}: {what}")),
                Stop::Ended => Stop::Ended,
            })?;
        }
        Ok(life)
    }

    /// A life that ends as planned, or after its last step where the plan names a later place.
    pub fn live_and_die(&mut self, steps: &[Step], plan: Plan) -> Result<(), String> {
        let disk = self.disk.clone();
        plan.end(&disk, || self.live(steps))?;
        self.crashed = true;
        self.disk.power_on();
        Ok(())
    }

    /// The last life: goes through the steps, closes, and finds everything again, with and without
    /// the note that names the last checkpoint.
    pub fn live_and_close(&mut self, steps: &[Step]) -> Result<(), String> {
        let reported = |stop: Stop| format!("{stop}");
        let mut life = self.live(steps).map_err(reported)?;
        self.look(&life).map_err(reported)?;
        self.reopen(&mut life, true).map_err(reported)?;
        self.look(&life).map_err(reported)?;
        self.reopen(&mut life, false).map_err(|stop| format!("without the note: {stop}"))?;
        self.look(&life).map_err(reported)
    }
}
