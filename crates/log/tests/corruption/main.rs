//! Corrupted files: whole, a reported torn tail, or typed corruption, never silent loss.

#[path = "../kit/corruption_kit/mod.rs"]
mod corruption_kit;

mod bytes_past_the_end;
mod copied_by_hand;
mod flipped_bytes;
mod locks_and_unknown_files;
mod other_options;
mod positions;
mod torn_sectors;
mod truncated_files;
mod unreadable_sectors;
mod wrong_files;
mod zeroed_fields;
