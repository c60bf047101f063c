//! A store with one caller.

mod async_forms;
mod backup;
mod limits;
mod read_only;
mod snapshots;
mod space;
mod watch;
