//! `esker kv`: its commands, export and import, flags and messages.

use esker_testkit::commands as esker;

mod backup;
mod commands;
mod transfer;
mod usage;
