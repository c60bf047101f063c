//! An oracle on a node: answers requests while the node leads.

mod counters;
mod error;
mod issuer;
mod leased;
mod options;
mod requests;

pub use counters::OracleStats;
pub use error::{COUNT_MAX, OracleError};
pub use options::{OracleOptions, WallClock};
pub use requests::Oracle;
