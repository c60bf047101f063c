//! `esker kv`: its commands, export and import, flags and messages.

mod backup;
mod commands;
mod transfer;
mod usage;
