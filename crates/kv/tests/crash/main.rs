//! Crash tests: the shipped store, its recovery and its cleaning, over the simulated disk.

mod backup;
mod every_boundary;
mod random_programs;
