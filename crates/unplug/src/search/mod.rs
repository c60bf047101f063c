//! The search for a state that the check refuses, and the smallest loss that shows it.

pub mod candidates;
pub mod classes;
pub mod random;
#[cfg(test)]
mod reference;
pub mod shrink;
pub mod state_id;
