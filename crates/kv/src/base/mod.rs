//! Errors, options, statistics and tickets.

pub(crate) mod error;
pub(crate) mod options;
pub(crate) mod read_only_options;
pub(crate) mod stats;
pub(crate) mod ticket;
pub(crate) mod trim_retries;
