//! TLS 1.3: between nodes, and on the port of clients.
//!
//! `peer_name` is the name that a certificate gives to a node, and `peer_tls` encrypts and
//! authenticates connections to other nodes. `port_tls` accepts connections on the port of clients:
//! those of clients, whose certificates `client_ca` verifies, and those of nodes. `port_stream` is
//! such a connection, and `client_role` what the caller has proven. `configs` makes rustls's
//! configurations from files, and `system_clock` gives them the time.

mod client_ca;
mod client_role;
mod configs;
mod peer_name;
mod peer_tls;
mod port_stream;
mod port_tls;
mod system_clock;

pub(crate) use client_ca::ClientCa;
pub(crate) use client_role::{ADMIN_NAME, ClientRole, ConnectionAccess};
#[cfg(feature = "http3")]
pub(crate) use configs::clients_config;
pub(crate) use peer_name::{DOMAIN, PeerName};
pub(crate) use peer_tls::{HttpVersion, PeerTls};
pub(crate) use port_tls::{Accepted, PortTls, TLS_PORT_TEXT};
