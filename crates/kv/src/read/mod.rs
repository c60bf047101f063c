//! Reading: one key, many keys, ranges, and points in time.

pub(crate) mod check_records;
pub(crate) mod follow;
pub(crate) mod get;
pub(crate) mod key_range;
pub(crate) mod keyspace_reader;
pub(crate) mod read_ahead;
pub(crate) mod scan;
pub(crate) mod snapshot;
