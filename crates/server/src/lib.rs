//! A node of the timestamp service, as `esker serve` runs it: a Raft node with an oracle, its HTTP
//! interface over HTTP/1.1 and HTTP/2 on one port, with TLS or without, and over HTTP/3 (feature
//! `http3`, on by default) on that number over UDP, metrics, and membership.
//!
//! Each request has a span with the target [`SPAN_TARGET`](esker_oracle::SPAN_TARGET), if a
//! subscriber takes it. With the feature `otlp`, on by default, it continues the trace of the
//! client.
//!
//! # Limits
//!
//! | what | limit | beyond it |
//! |---|---|---|
//! | connections | [`ServerOptions::connections_max`] | 64 more: one request, none for timestamps |
//! | still more connections | | wait in the backlog of the listener |
//! | requests that wait for a timestamp | [`OracleOptions::buffer`] | 503 with `Retry-After` |
//! | time of a request for timestamps | [`OracleOptions::patience`] | 500 |
//! | unsent lists of over 16 timestamps | 256 MiB, 16 of a connection | 503, `Retry-After` |
//! | other answers of over 1 KiB; bodies of changes | 64 MiB, 4 of a connection, each | the same |
//! | time of a request that waits for this memory | 1 s | the same |
//! | a connection that holds it, takes nothing for 2 s, and requests wait | | it is closed |
//! | unsent shorter answers | one for each stream of all connections | wait in the client |
//! | a connection that does not take an answer (HTTP/1.1: a long one) | 25 to 50 s | it is closed |
//! | streams of an HTTP/2 or HTTP/3 connection | 128 | wait in the client |
//! | header of a request | 16 KiB | 431, or the connection ends |
//! | body of a request | 64 KiB | 413 |
//! | a connection without a request | 75 s | it is closed |
//! | time of a handshake of TLS | 5 s | the connection is closed |
//! | connections over HTTP/3 | [`ServerOptions::connections_max`] | they are refused |
//! | handshakes of HTTP/3 at a time | 64 | clients prove their address first |
//! | time of a handshake, a header, an answer there | 5, 10, 20 s | connection or stream end |
//! | bytes of a request, of all of a connection there | 128 KiB, 1 MiB | the stream ends |
//! | requests that a follower forwards at a time | 512 | 503 with `Retry-After` |
//! | closing the log at the end | [`ServerOptions::close_timeout`] | the node ends with an error |
//!
//! [`OracleOptions::buffer`]: esker_oracle::OracleOptions::buffer
//! [`OracleOptions::patience`]: esker_oracle::OracleOptions::patience
//!
//! # Source
//!
//! For readers of the source:
//!
//! | module | contents |
//! |---|---|
//! | `server` | a node, from its start to its end |
//! | `identity` | the number and the cluster that a data folder belongs to |
//! | `founding`, `join`, `loopback` | founding a cluster, joining one, checking its addresses |
//! | `node_state` | the state that all requests and tasks share |
//! | `supervisor` | stops the node when a task ends or an invariant does not hold |
//! | `duplicate_node`, `disk_stall`, `lease_reads` | tasks of a running node |
//! | `handover` | gives leadership away when the node stops |
//! | `client_ports`, `port`, `certificate` | the ports of clients, and their certificate |
//! | `tls`, `tls_refusals` | TLS between nodes and for clients, and what it refuses |
//! | `cluster_certificates` | an authority, and certificates of nodes |
//! | `security` | who may change the cluster, and calls of this node to others |
//! | `http` | the HTTP interface |
//! | `reload` | files that are read again when they change |
//! | `memory_budget`, `idle`, `log_limiter` | limits of connections, and of repeated log lines |
//! | `call`, `forward`, `protocol` | calls of members, forwarded requests, and their JSON |

mod call;
mod certificate;
mod client_ports;
mod cluster_certificates;
mod counters;
mod disk_stall;
mod duplicate_node;
mod error;
mod forward;
mod founding;
mod handover;
mod http;
mod identity;
mod idle;
mod join;
mod lease_reads;
mod log_limiter;
mod loopback;
mod memory_budget;
mod node_state;
mod options;
mod port;
mod protocol;
mod reload;
mod security;
mod server;
mod supervisor;
mod tls;
mod tls_refusals;

pub use bytes::Bytes;
pub use call::{Answer, ask, is_address};
pub use cluster_certificates::{make_certificates, renew_certificates};
pub use error::{CallError, ServerError};
pub use esker_raft::connect;
#[cfg(feature = "http3")]
pub use http::static_http3;
pub use identity::is_node_label;
pub use options::{CertificateFiles, FollowerAnswer, PeerCertificateFiles, ServerOptions};
pub use protocol::{
    AddNodeRequest, ClockStatus, CreatedSequence, FollowClockRequest, FollowClockResponse,
    FollowerStatus, MemberInfo, Members, NodeStatus, RemoveNodeRequest, SequenceEntry,
    SequenceList, SequenceNumbers, TransferRequest, TransferResponse,
};
pub use security::read_secret_file;
pub use server::Server;
