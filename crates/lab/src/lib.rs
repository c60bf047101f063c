//! The crash lab: programs whose writes are checked value by value, and crashes that end them
//! anywhere.
//!
//! [`power_cuts`] runs each component over the simulated disk, [`disk_faults`] lets that disk fail,
//! and [`kills`] runs each component in a process of its own on a real disk. [`cut_power`] cuts the
//! power under a [`Program`] of yours. Each crash leaves a [`Survival`], which is held against the
//! [`Promise`] of the policy; all of a setting are summed up in [`Statistics`].
//!
//! ```
//! use esker_lab::{Options, power_cuts};
//!
//! for cuts in power_cuts() {
//!     let outcome = cuts.run(Options { first_seed: 1, runs: 2 }, &|_| {});
//!     assert_eq!(outcome.violations, 0, "{:?}: {:?}", cuts.setting, outcome.examples);
//! }
//! ```
//!
//! `log`, `consensus`, `manager` and `kv` have the programs and the models of the components, also
//! for their own crash tests. `plan` says where a life ends, `interleaving` which calls come during
//! another, and `subject` what the driver in `power` needs of a component. With the feature
//! `planted-bugs`, `selftest` plants bugs that all of this has to find.

#[doc(hidden)]
pub mod consensus;
mod faults;
mod interleaving;
mod kill;
#[doc(hidden)]
pub mod kv;
#[doc(hidden)]
pub mod log;
#[doc(hidden)]
pub mod manager;
mod outcome;
#[doc(hidden)]
pub mod plan;
mod power;
mod program;
mod promise;
#[cfg(feature = "planted-bugs")]
pub mod selftest;
mod setting;
mod simulation;
mod subject;
mod survival;
#[cfg(test)]
mod tests;

pub use faults::disk_faults;
pub use kill::{Kills, Life, Spawn, kills};
pub use outcome::{Outcome, Violation};
pub use power::power_cuts;
pub use program::{BoxError, Changes, Program, cut_power};
pub use promise::Promise;
pub use setting::Setting;
pub use simulation::{Options, Simulation};
pub use survival::{Statistics, Survival};
