//! The contract of a store: what is durable when, and what corruption and failures do to it.

mod corruption;
mod failures;
mod full_disk;
mod gap;
mod log_options;
mod policies;
mod positions;
