//! Measuring a run, and printing the figures.

pub mod allocations;
pub mod call_clock;
pub mod figure;
pub mod floor_figures;
pub mod keys;
pub mod latency;
pub mod per_thread;
pub mod resources;
