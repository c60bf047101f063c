//! Faults that the simulated disk injects.

mod determinism;
mod failed_sync;
mod full_disk;
mod injected_faults;
