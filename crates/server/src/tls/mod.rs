//! TLS 1.3 between nodes.
//!
//! `peer_name` is the name that a certificate gives to a node, `peer_tls` encrypts and
//! authenticates connections, and `configs` makes rustls's configurations from files.

mod configs;
mod peer_name;
mod peer_tls;

pub(crate) use peer_name::PeerName;
pub(crate) use peer_tls::PeerTls;
