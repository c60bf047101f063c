//! The state of a store, which all operations share.

pub(crate) mod apply;
pub(crate) mod cleaning;
pub(crate) mod gap;
pub(crate) mod handle;
pub(crate) mod keyspaces;
pub(crate) mod log_follower;
pub(crate) mod records;
pub(crate) mod request;
pub(crate) mod snapshots;
pub(crate) mod store_state;
pub(crate) mod store_writer;
pub(crate) mod throttle;
