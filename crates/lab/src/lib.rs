//! The crash lab: programs whose writes are checked value by value, and crashes that end them
//! anywhere.

#[doc(hidden)]
pub mod consensus;
mod kill;
#[doc(hidden)]
pub mod kv;
#[doc(hidden)]
pub mod log;
mod outcome;
#[doc(hidden)]
pub mod plan;
mod power;
mod promise;
mod settings;
mod subject;
mod survival;
#[cfg(test)]
mod tests;

pub use kill::{KillSetting, Life, Spawn, kill_settings};
pub use outcome::{Outcome, Violation};
pub use power::Options;
pub use promise::Promise;
pub use settings::{Setting, settings};
pub use survival::{Statistics, Survival};
