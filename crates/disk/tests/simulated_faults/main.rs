//! Faults that the simulated disk injects.

#[path = "../kit/by_path.rs"]
mod by_path;

mod determinism;
mod failed_sync;
mod full_disk;
mod injected_faults;
