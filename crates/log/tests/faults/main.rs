//! Calls of the disk that fail, lie, stop short or find no room.

#[path = "../kit/case.rs"]
mod case;
#[path = "../kit/fixture.rs"]
mod fixture;

mod close_races;
mod closing_wakers;
mod contended_space;
mod every_call;
mod failed_state;
mod failed_sync;
mod full_disk;
mod in_recovery;
mod io_uring;
mod lying_reads;
mod lying_writes;
mod no_space;
mod poisoned;
mod short_calls;
mod waiting_for_space;
