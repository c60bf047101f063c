//! Several processes on one log: locks, readers beside writers, kills.

#[path = "../kit/esker.rs"]
mod esker;

mod backup;
mod bounded_memory;
mod closed_output;
mod killed_writer;
mod moved_directory;
mod offsets;
mod progress;
mod repeated_kills;
mod second_writer;
mod tour;
mod verify_during_writes;
