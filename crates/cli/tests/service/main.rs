//! The timestamp service as processes.

#[path = "../kit/esker.rs"]
mod esker;

mod faults;
mod history;
mod nodes;
mod settings;
mod timestamps;
