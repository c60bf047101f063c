//! What a store does for one caller.

mod limits;
mod snapshots;
mod space;
mod watch;
