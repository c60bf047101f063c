//! Failed calls, full disks, corrupted files and repaired logs.

mod copied_logs;
mod corrupt_page;
mod corrupted_bytes;
mod failed_calls;
mod full_disk;
mod repaired_logs;
