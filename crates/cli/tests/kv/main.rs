//! `esker kv`: its commands, export and import, flags and messages.

#[path = "../kit/esker.rs"]
mod esker;

mod backup;
mod commands;
mod transfer;
mod usage;
