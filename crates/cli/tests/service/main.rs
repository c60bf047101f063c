//! The timestamp service as processes.

#[path = "../kit/esker.rs"]
mod esker;

mod nodes;
mod settings;
mod timestamps;
