//! A node of the timestamp service, as `esker serve` runs it: a Raft node with an oracle, its HTTP
//! interface over HTTP/1.1 and cleartext HTTP/2 on one port and HTTP/3 (feature `http3`, on by
//! default) on that number over UDP, metrics, and membership.
//!
//! Each request has a span with the target [`SPAN_TARGET`](esker_oracle::SPAN_TARGET), if a
//! subscriber takes it. With the feature `otlp`, on by default, it continues the trace of the
//! client.
//!
//! # Limits
//!
//! | what | limit | beyond it |
//! |---|---|---|
//! | connections | [`ServerOptions::connections`] | 64 more: one request, none for timestamps |
//! | still more connections | | wait in the backlog of the listener |
//! | requests that wait for a timestamp | [`OracleOptions::buffer`] | 503 with `Retry-After` |
//! | time of a request for timestamps | [`OracleOptions::patience`] | 500 |
//! | unsent lists of over 16 timestamps | 256 MiB, 16 of a connection | 503, `Retry-After` |
//! | other answers of over 1 KiB; bodies of changes | 64 MiB, 4 of a connection, each | the same |
//! | a request that waits for such room | 1 s | the same |
//! | a connection that holds it, takes nothing for 2 s, and others wait | | it is closed |
//! | shorter answers on their way | one for each stream of all connections | wait in the client |
//! | a connection that does not take an answer (HTTP/1.1: a long one) | 25 to 50 s | it is closed |
//! | streams of an HTTP/2 or HTTP/3 connection | 128 | wait in the client |
//! | header of a request | 16 KiB | 431, or the connection ends |
//! | body of a request | 64 KiB | 413 |
//! | a connection without a request | 75 s | it is closed |
//! | connections over HTTP/3 | [`ServerOptions::connections`], apart | they are refused |
//! | handshakes of HTTP/3 at a time | 64 | a client shows first that it is where it says |
//! | time of a handshake, a header, an answer there | 5, 10, 20 s | connection or stream end |
//! | bytes of a request, of all of a connection there | 128 KiB, 1 MiB | the stream ends |
//! | requests that a follower forwards at a time | 512 | 503 with `Retry-After` |
//! | closing the log when the node stops | [`ServerOptions::close`] | the node ends with an error |
//!
//! [`OracleOptions::buffer`]: esker_oracle::OracleOptions::buffer
//! [`OracleOptions::patience`]: esker_oracle::OracleOptions::patience
//!
//! # Source
//!
//! For readers of the source: `identity` is what a data folder says of its node; `call` asks other
//! members over HTTP, `forward` in place of a client, and `protocol` is what they are asked;
//! `certificate` is that of HTTP/3; `port` binds; `rooms` bounds the memory of connections, and
//! `looks` ends unused ones; `reach` checks the addresses of members; `shared` is what all requests
//! use; `http` answers; `founding` founds a cluster of several nodes; `join`, `standing`, `stall`
//! and `leases` run beside it, each watched by `supervise`, and `handover` when it stops; `server`
//! puts everything together.

mod call;
#[cfg(feature = "http3")]
mod certificate;
mod clients;
mod counters;
mod error;
mod forward;
mod founding;
mod handover;
mod http;
mod identity;
mod join;
mod leases;
mod looks;
mod options;
mod port;
mod protocol;
mod reach;
mod refusals;
mod rooms;
mod server;
mod shared;
mod stall;
mod standing;
mod supervise;

pub use bytes::Bytes;
pub use call::{Answer, CallError, ask, ask_leader, is_address};
pub use error::ServerError;
pub use esker_raft::connect;
#[cfg(feature = "http3")]
pub use http::static_http3;
pub use identity::is_of_a_node;
pub use options::{CertificateFiles, FollowerAnswer, ServerOptions};
pub use protocol::{
    AddNode, ClockStatus, FollowClock, FollowedClock, Members, Named, NodeStatus, RemoveNode,
    TransferTo, Transferred,
};
pub use server::Server;
