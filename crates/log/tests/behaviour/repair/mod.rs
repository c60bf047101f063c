//! Repair of corrupted logs.

mod content_of_other_segments;
mod cut_off_bytes;
mod full_disk;
mod lookalikes;
mod missing_files;
mod power_cuts;
mod readers_at_the_gap;
mod repeated;
mod salvage;
mod truncate;
mod truncated_logs;
mod valid_logs;
mod valid_units_are_kept;
