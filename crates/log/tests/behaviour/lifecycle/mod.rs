//! A log from open to close: options, the lock, unknown files, metadata, errors and engine stops.

mod app_metadata;
mod close;
mod documented_examples;
mod engine_stop;
mod errors;
mod file_modes;
mod foreign_files;
mod kept_footer;
mod metadata;
mod moved_directory;
mod options;
mod payload_bytes;
mod reopen;
