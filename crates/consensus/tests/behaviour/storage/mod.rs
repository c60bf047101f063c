//! Storage: the value budget, checkpoints, reclaiming, opening and foreign directories.

mod checkpoints;
mod foreign_directories;
mod opening;
mod reclaiming;
mod room_for_values;
