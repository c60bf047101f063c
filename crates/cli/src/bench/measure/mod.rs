//! What is measured of a run, and how it is printed.

pub mod allocations;
pub mod figure;
pub mod floor_figures;
pub mod latency;
pub mod per_thread;
pub mod resources;
