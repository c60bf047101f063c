//! The HTTP interface.
//!
//! `listener` has the connections over TCP and `http3` those over UDP, `client` is what each of
//! them may hold, `route` finds what a request is for, `timestamp`, `info` and `cluster` answer it,
//! `answer` is how answers look, and `span` what a collector of spans learns of a request.

mod answer;
pub(crate) mod client;
mod cluster;
#[cfg(feature = "http3")]
pub(crate) mod http3;
mod info;
pub(crate) mod listener;
mod metrics;
pub(crate) mod route;
mod span;
mod timestamp;

#[cfg(feature = "http3")]
pub use http3::static_http3;
