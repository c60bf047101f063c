//! Commits: policies, commits in flight, syncs and the preallocator.

mod chained_units;
mod grouped_writes;
mod in_flight;
mod policies;
mod preallocation;
mod prewriting_after_a_burst;
mod sync_count;
