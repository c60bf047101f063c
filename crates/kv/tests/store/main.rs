//! What a store does for one caller.

mod async_forms;
mod backup;
mod limits;
mod read_only;
mod snapshots;
mod space;
mod watch;
