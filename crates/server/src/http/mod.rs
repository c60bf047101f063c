//! The HTTP interface.
//!
//! `listener` has the connections, `route` finds what a request is for, `timestamp`, `info` and
//! `cluster` answer it, `answer` is how answers look.

mod answer;
mod cluster;
mod info;
pub(crate) mod listener;
mod metrics;
mod route;
mod timestamp;
