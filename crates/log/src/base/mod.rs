//! Basic types of the crate: errors, options, sequence numbers, positions, metrics by name.

pub(crate) mod component;
pub(crate) mod error;
mod error_conversions;
pub(crate) mod invalid_option;
pub(crate) mod lender;
pub(crate) mod log_end;
pub(crate) mod log_error;
pub(crate) mod metric_value;
pub(crate) mod operation_errors;
pub(crate) mod options;
pub(crate) mod position;
pub(crate) mod purpose;
pub(crate) mod read_options;
pub(crate) mod write_error;
