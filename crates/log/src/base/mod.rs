//! Basic types of the crate: errors, options, sequence numbers, positions.

pub(crate) mod component;
pub(crate) mod error;
pub(crate) mod log_end;
pub(crate) mod options;
pub(crate) mod position;
pub(crate) mod read_options;
pub(crate) mod shared_reserve;
