//! Exit status and message of what fails: usage, directories, full disks and corruption.

mod advice;
mod corruption;
mod dangling_link;
mod full_disk;
mod garbage_in_a_segment;
mod not_a_directory;
mod read_only_directory;
mod usage;
