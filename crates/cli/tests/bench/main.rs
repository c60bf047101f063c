//! `esker log bench`: what it prints, measures and checks.

#[path = "../kit/esker.rs"]
mod esker;

mod documented_commands;
mod json_keys;
mod kv;
mod many_callers;
mod offsets;
mod options;
mod readers;
