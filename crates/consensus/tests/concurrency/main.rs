//! Many threads on one log.

#[path = "../kit/fixture.rs"]
mod fixture;

mod history;
mod maintenance_beside_callers;
mod recorded_history;
mod threads;
