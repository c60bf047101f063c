//! Commits: policies, commits in flight, syncs, the preallocator, and the order of wakes.

mod chained_units;
mod grouped_writes;
mod in_flight;
mod policies;
mod preallocation;
mod prewriting_after_a_burst;
mod slow_wakers;
mod sync_count;
