//! Many logs by key: opened when they are used, and closed when they are idle and others are used.
//!
//! `open_log_table` finds the log of a key; `log_guard` is a reference to it. `registry` keeps the
//! keys, `registry_state` has its records, and `glob` matches keys; `directory_names` has the
//! directory of a key. `open_manager` opens a manager, `get_log` a log, and `close_logs` closes
//! both. `evict_idle` closes the logs that were not used for the longest time. `remove` removes a
//! log, `backup_all` copies all, `renumber` makes a copy writable, and `list_logs` lists the logs
//! without the lock.
//!
//! # The crash argument
//!
//! A log is a directory of its own, with its own crash argument. A log that is closed to make room
//! is closed as any other: what it accepted is there when it is opened again. The registry's
//! argument is there.

pub(crate) mod backup_all;
pub(crate) mod close_logs;
mod directory_names;
mod evict_idle;
pub(crate) mod get_log;
mod glob;
pub(crate) mod list_logs;
pub(crate) mod log_guard;
mod open_log_table;
pub(crate) mod open_manager;
mod registry;
mod registry_state;
pub(crate) mod remove;
mod renumber;
