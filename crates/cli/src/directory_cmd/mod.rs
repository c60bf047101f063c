//! `esker stat`, `verify`, `repair`, `backup` and `restore`, for the directory of any component.
//!
//! `component` finds out what a directory is. Each command has a file with its arguments, and one
//! for each component that it treats differently.

pub mod backup;
mod component;
mod consensus_backup;
mod consensus_stat;
mod consensus_verify;
mod destination;
mod log_backup;
mod log_stat;
mod log_verify;
pub mod repair;
pub mod restore;
mod shutdown;
pub mod stat;
mod store_backup;
mod store_stat;
mod store_verify;
pub mod verify;
