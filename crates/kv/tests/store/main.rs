//! What a store does for one caller.

mod backup;
mod limits;
mod snapshots;
mod space;
mod watch;
