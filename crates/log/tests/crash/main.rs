//! Power cuts and killed processes: durable ⊆ recovered ⊆ accepted.

#[path = "../kit/case.rs"]
mod case;
#[path = "../kit/corruption_kit/mod.rs"]
mod corruption_kit;
#[path = "../kit/fixture.rs"]
mod fixture;

mod atomic_batches;
mod dead_records;
mod durable_blocks;
mod durable_bound;
mod empty_newest_segment;
mod every_boundary;
mod first_open;
mod in_recovery;
mod policies;
mod random_soak;
mod temporary_files;
mod units_after_a_torn_unit;
mod unsynced_segments;
mod with_readers;
mod with_threads;
