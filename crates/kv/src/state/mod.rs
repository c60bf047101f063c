//! What all operations on a store share.

pub(crate) mod apply;
pub(crate) mod follow;
pub(crate) mod gap;
pub(crate) mod handle;
pub(crate) mod inner;
pub(crate) mod keyspaces;
pub(crate) mod records;
pub(crate) mod request;
pub(crate) mod snapshots;
pub(crate) mod throttle;
pub(crate) mod view;
