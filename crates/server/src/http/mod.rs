//! The HTTP interface.
//!
//! `listener` has the connections over TCP, `connection_places` how many there are, and `http3`
//! those over UDP. `client` is what each of them may hold, `route` finds what a request is for,
//! `timestamp`, `info` and `cluster` answer it, `answer` and `body` are how answers look, `span` is
//! what a collector of spans learns of a request, and `waiting` answers before there is a cluster.

mod answer;
mod body;
pub(crate) mod client;
mod cluster;
pub(crate) mod connection_places;
#[cfg(feature = "http3")]
pub(crate) mod http3;
mod info;
pub(crate) mod listener;
mod metrics;
pub(crate) mod route;
mod span;
mod timestamp;
pub(crate) mod waiting;

#[cfg(feature = "http3")]
pub use http3::static_http3;
