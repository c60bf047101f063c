//! Memory between append and disk: appenders fill it, commits write it, and readers of the tail
//! read it.
//!
//! `buffer` is one staging buffer. `fill_tracker` counts how much of a unit is filled. `tail_cache`
//! keeps the buffers until no reader uses them. `watermark` publishes how far the log is durable,
//! `terminal` why it accepts nothing more. `staged` lists units that are not durable.

pub(crate) mod buffer;
pub(crate) mod fill_tracker;
pub(crate) mod staged;
pub(crate) mod tail_cache;
pub(crate) mod terminal;
pub(crate) mod watermark;
