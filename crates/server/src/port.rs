//! Ports over TCP, bound long before connections are accepted.
//!
//! A port that cannot be had is an error before the data is touched. Until the node can answer, it
//! does not listen: what connects is refused, and goes to another node at once.

use std::io;
use std::net::{SocketAddr, TcpListener};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::error::ServerError;

/// Connections that wait to be accepted, as far as the system allows: the standard library's 128
/// are too few for clients that come all at once.
const BACKLOG: i32 = 4096;

/// A port at this address, which does not listen yet.
pub(crate) fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, ServerError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let bound =
        rustix::net::socket_with(family, SocketType::STREAM, flags, None).and_then(|port| {
            // Connections of the node before may not have ended everywhere.
            sockopt::set_socket_reuseaddr(&port, true)?;
            rustix::net::bind(&port, &address)?;
            Ok(TcpListener::from(port))
        });
    bound.map_err(|error| failed(address, flag, error.into()))
}

/// Accepts connections, from here on. Fails if a process that bound the same address was faster.
pub(crate) fn listen(port: &TcpListener, flag: &str) -> Result<(), ServerError> {
    let address = port.local_addr().map_err(|error| ServerError::Io(flag.into(), error))?;
    rustix::net::listen(port, BACKLOG).map_err(|error| failed(address, flag, error.into()))
}

fn failed(address: SocketAddr, flag: &str, error: io::Error) -> ServerError {
    ServerError::Io(format!("cannot listen on {address} ({flag})"), error)
}
