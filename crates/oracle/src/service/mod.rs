//! An oracle on a node: answers requests while the node leads.

mod clock_state;
mod counters;
mod error;
mod issuer;
mod leased;
mod options;
mod requests;
mod spans;

pub use clock_state::ClockReport;
pub use counters::OracleStats;
pub use error::{COUNT_MAX, OracleError};
pub use options::OracleOptions;
pub use requests::Oracle;
pub use spans::SPANS;
