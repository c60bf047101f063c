//! The HTTP interface.
//!
//! `listener` accepts connections over TCP, within the limit of `connection_slots`, and `http3`
//! those over UDP. `client_connection` is the state of a connection. `route` finds the handler of a
//! request: `timestamp`, `sequence`, `info`, `metrics`, `cluster` or `page`. `answer` and `body`
//! build answers, `refusal` those to changes that are not made. `span` records requests for a
//! collector of spans, and `founding_listener` answers before there is a cluster.

mod answer;
mod body;
pub(crate) mod client_connection;
mod cluster;
pub(crate) mod connection_slots;
pub(crate) mod founding_listener;
#[cfg(feature = "http3")]
pub(crate) mod http3;
mod info;
pub(crate) mod listener;
mod metrics;
mod page;
mod refusal;
pub(crate) mod route;
mod sequence;
mod span;
mod timestamp;

#[cfg(feature = "http3")]
pub use http3::static_http3;
