//! Power cuts under programs that a model checks.

mod every_boundary;
mod interleavings;
mod pending_raise;
mod random_programs;
mod strategy;
