//! An oracle on a node: answers requests while the node leads.

mod advance_failures;
mod clock_state;
mod counters;
mod error;
mod issued_epochs;
mod issuer;
mod options;
mod requests;
mod sequence_error;
mod sequence_queue;
mod sequence_requests;
mod span_target;

pub use clock_state::ClockReport;
pub use counters::OracleStats;
pub use error::{COUNT_MAX, OracleError};
pub use options::OracleOptions;
pub use requests::Oracle;
pub use sequence_error::SequenceError;
pub use sequence_requests::OracleSequences;
pub use span_target::SPAN_TARGET;
