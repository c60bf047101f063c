//! Commits: policies, commits in flight, syncs and the preallocator.

#[path = "../kit/fixture.rs"]
mod fixture;

mod chained_units;
mod in_flight;
mod policies;
mod preallocation;
mod sync_count;
