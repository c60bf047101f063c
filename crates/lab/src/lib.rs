//! The crash lab: programs whose writes are checked value by value, and crashes that end them
//! anywhere.

#[doc(hidden)]
pub mod consensus;
#[doc(hidden)]
pub mod kv;
#[doc(hidden)]
pub mod log;
#[doc(hidden)]
pub mod plan;
mod power;
mod promise;
mod settings;
mod subject;
mod survival;
#[cfg(test)]
mod tests;

pub use power::{Options, Outcome, Violation};
pub use promise::Promise;
pub use settings::{Setting, settings};
pub use survival::{Statistics, Survival};
