//! Retention and truncation, and readers below the trim point.

mod clock_steps;
mod full_disk;
mod limits;
mod readers_below_the_trim_point;
mod shared_reserve;
mod truncate;
