//! Several processes on one log: locks, readers beside writers, kills.

use esker_testkit::commands as esker;

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
