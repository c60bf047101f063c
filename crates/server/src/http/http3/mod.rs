//! HTTP/3: QUIC on the port of HTTP/1.1 and HTTP/2, over UDP.
//!
//! The libraries are young, so no other module names them. `socket` binds the port, `endpoint`
//! accepts connections, after their `handshake`, `connection` answers their requests, and
//! `bounded_stream` limits the bytes that `h3` buffers for a client.

mod bounded_stream;
mod connection;
mod endpoint;
mod handshake;
mod socket;

pub use endpoint::static_http3;
pub(crate) use endpoint::{ConnectionEvent, Endpoint, serve};
pub(crate) use socket::bind_both;
