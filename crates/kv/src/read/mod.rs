//! Reading: one key, many keys, ranges, and points in time.

pub(crate) mod ahead;
pub(crate) mod check;
pub(crate) mod follow;
pub(crate) mod get;
pub(crate) mod keyspace;
pub(crate) mod range;
pub(crate) mod scan;
pub(crate) mod snapshot;
