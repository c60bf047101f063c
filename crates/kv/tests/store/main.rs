//! What a store does for one caller.

mod backup;
mod limits;
mod read_only;
mod snapshots;
mod space;
mod watch;
