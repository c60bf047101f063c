//! The HTTP interface.
//!
//! `listener` has the connections, `client` is what each of them may hold, `route` finds what a
//! request is for, `timestamp`, `info` and `cluster` answer it, `answer` is how answers look.

mod answer;
mod client;
mod cluster;
mod info;
pub(crate) mod listener;
mod metrics;
mod route;
mod timestamp;
