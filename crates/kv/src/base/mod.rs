//! Errors, options, statistics and tickets.

pub(crate) mod corrupted_record;
pub(crate) mod error;
mod error_conversions;
pub(crate) mod key_checks;
pub(crate) mod operation_errors;
pub(crate) mod options;
pub(crate) mod read_only_options;
pub(crate) mod stats;
pub(crate) mod store_error;
pub(crate) mod ticket;
pub(crate) mod trim_retries;
