//! The promises of the log to its users. Tests that need a process of their own, and those of
//! crashes, are beside this one.

#[path = "../kit/corruption_kit/mod.rs"]
mod corruption_kit;
#[path = "../kit/fixture.rs"]
mod fixture;

mod append;
mod commit;
mod format;
mod lifecycle;
mod metrics;
mod read;
mod read_cache;
mod repair;
mod retention;
mod snapshots;
