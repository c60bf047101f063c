//! Power cuts on the simulated disk.

mod cut_points;
mod dead_handles;
mod forks;
mod replaced_files;
mod torn_sectors;
mod unsynced_bytes;
mod unsynced_names;
