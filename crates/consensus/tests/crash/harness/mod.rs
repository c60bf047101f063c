//! The base of the crash suite: programs over a consensus log on the simulated disk, a model of
//! what must be there, and a power that fails anywhere.
//!
//! One sentence is checked, slot by slot: **acknowledged ⊆ recovered ⊆ attempted**. A promise that
//! was acknowledged is there, and so is an accept or a higher one of the same slot; a commit that
//! was acknowledged is there with its value; nothing is there that was never tried; and a slot that
//! was ever seen committed never changes. What was waited for makes everything before it durable,
//! tickets that were dropped among it.
//!
//! Everything runs on the test's thread with a manual engine: a case is fixed by its seed and the
//! place where power fails.
#![allow(clippy::unwrap_used, clippy::panic)]

mod checks;
mod model;
mod program;
mod steps;
pub mod strategy;

use std::sync::Arc;

use esker_consensus::{ConsensusLog, Error, Mode, Options};
use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::Engine;
use esker_testkit::SplitMix64;

use model::Model;
pub use program::{Bid, SLOTS, Step, program};

pub const DIR: &str = "/consensus";

/// Why a life did not continue.
#[derive(Debug)]
pub enum Stop {
    /// The power is off.
    Ended,
    /// An error while the power was on, or a broken promise.
    Broken(String),
}

pub type Lived<T = ()> = Result<T, Stop>;

macro_rules! broken {
    ($($reported:tt)*) => { return Err($crate::harness::Stop::Broken(format!($($reported)*))) };
}

macro_rules! ensure {
    ($holds:expr, $($reported:tt)*) => { if !$holds { $crate::harness::broken!($($reported)*) } };
}

use {broken, ensure};

/// The options that promise different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    pub mode: Mode,
    pub sync_on_commit: bool,
    /// A cache that holds next to nothing, and a value budget that is full now and then.
    pub small: bool,
}

impl Setup {
    pub fn of(mode: Mode, small: bool) -> Self {
        Self { mode, sync_on_commit: true, small }
    }

    /// The bytes of the value budget.
    pub fn room(&self) -> u64 {
        if self.small { 12 << 10 } else { 64 << 20 }
    }
}

/// A disk, a log on it now and then, and what must be in it.
pub struct SimEnv {
    pub disk: SimDisk,
    pub setup: Setup,
    /// Whether everything is looked at after every step, and the records at every opening.
    pub checks: bool,
    model: Model,
    nonce: u64,
}

pub struct Life {
    pub log: ConsensusLog,
    engine: Engine,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

impl SimEnv {
    pub fn new(setup: Setup, seed: u64) -> Self {
        let disk = SimDisk::new(seed);
        Self { disk, setup, checks: false, model: Model::default(), nonce: seed << 20 }
    }

    fn value(&mut self, len: usize) -> Vec<u8> {
        self.nonce += 1;
        let mut rng = SplitMix64::new(self.nonce);
        let mut value = self.nonce.to_le_bytes().to_vec();
        value.extend((0..len).map(|_| rng.next() as u8));
        value
    }

    fn stop<T>(&self, error: &Error, what: &str) -> Lived<T> {
        if self.disk.is_on() {
            Err(Stop::Broken(format!("{what}: {error:?}")))
        } else {
            Err(Stop::Ended)
        }
    }

    pub fn open(&mut self) -> Lived<Life> {
        let engine = Engine::manual();
        let mut options = Options::on(Arc::new(self.disk.process()));
        options.mode = self.setup.mode;
        options.sync_on_commit = self.setup.sync_on_commit;
        options.segment_size = 64 << 10;
        options.engine = Some(engine.clone());
        options.checkpoint_every = 1024;
        options.mutable_size = self.setup.room();
        if self.setup.small {
            options.cache_size = 4096;
        }
        match ConsensusLog::builder(DIR).options(options).open() {
            Ok(log) => {
                let life = Life { log, engine };
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
    pub fn live(&mut self, steps: &[Step]) -> Lived<Life> {
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

    /// A life that ends with the power, at an operation or after its last step.
    pub fn live_and_die(
        &mut self,
        steps: &[Step],
        at: CutPoint,
        how: Persist,
    ) -> Result<(), String> {
        self.disk.cut_power_at(at, how);
        self.live_until(steps, |disk| disk.power_cut(how))
    }

    /// A life whose process is killed, at an operation or after its last step.
    pub fn live_and_be_killed(&mut self, steps: &[Step], at: CutPoint) -> Result<(), String> {
        self.disk.kill_at(at);
        self.live_until(steps, SimDisk::kill)
    }

    fn live_until(&mut self, steps: &[Step], end: impl FnOnce(&SimDisk)) -> Result<(), String> {
        let lived = self.live(steps);
        self.disk.cancel_cut();
        match lived {
            Ok(life) => {
                end(&self.disk);
                drop(life);
            }
            Err(Stop::Ended) => {}
            Err(Stop::Broken(what)) => return Err(what),
        }
        self.disk.power_on();
        Ok(())
    }

    /// The last life: goes through the steps, closes, and finds everything again, with and without
    /// the note that names the last checkpoint.
    pub fn live_and_close(&mut self, steps: &[Step]) -> Result<(), String> {
        let reported = |stop: Stop| format!("{stop:?}");
        let mut life = self.live(steps).map_err(reported)?;
        self.look(&life).map_err(reported)?;
        self.reopen(&mut life, true).map_err(reported)?;
        self.look(&life).map_err(reported)?;
        self.reopen(&mut life, false).map_err(|stop| format!("without the note: {stop:?}"))?;
        self.look(&life).map_err(reported)
    }
}
