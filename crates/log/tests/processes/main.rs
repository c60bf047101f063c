//! Tests that start processes of their own: the lock, killed writers, output and full file systems.

#[path = "../kit/fixture.rs"]
mod fixture;

mod forks;
mod full_file_system;
mod killed_writers;
mod lock;
mod no_output;
