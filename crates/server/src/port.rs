//! TCP ports, which are bound long before connections are accepted.
//!
//! A port that is in use is an error before the data is touched. Until the node can answer, it does
//! not listen: connections are refused, and clients turn to another node at once.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::error::ServerError;

/// The connections that wait to be accepted, as far as the system allows: the standard library's
/// 128 are too few for clients that come all at once.
const BACKLOG_CONNECTIONS: i32 = 4096;

/// Binds a port, which does not listen yet.
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
    bound.map_err(|error| listen_error(address, flag, error.into()))
}

/// Listens on a bound port. Fails if a process that bound the same address was faster.
pub(crate) fn listen(port: &TcpListener, flag: &str) -> Result<(), ServerError> {
    let address = port.local_addr().map_err(|error| ServerError::Io(flag.into(), error))?;
    debug_assert_ne!(address.port(), 0, "a bound port has a number");
    rustix::net::listen(port, BACKLOG_CONNECTIONS)
        .map_err(|error| listen_error(address, flag, error.into()))
}

/// Returns the address of a bound port.
pub(crate) fn local_address(port: &TcpListener) -> Result<SocketAddr, ServerError> {
    port.local_addr().map_err(|error| ServerError::Io("a listener has no address".into(), error))
}

fn listen_error(address: SocketAddr, flag: &str, error: io::Error) -> ServerError {
    ServerError::Io(format!("cannot listen on {address} ({flag})"), error)
}

/// Whether only the host itself reaches this address. The only such name is `localhost`.
pub(crate) fn is_loopback(address: &str) -> bool {
    let host = host(address);
    let ip = host.parse().map(|ip: IpAddr| ip.to_canonical().is_loopback());
    ip.unwrap_or_else(|_| host.eq_ignore_ascii_case("localhost"))
}

/// Returns the host of an address, without its port, and without the brackets of IPv6.
pub(crate) fn host(address: &str) -> &str {
    let with_port = address.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let host = with_port.map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_an_address_or_one_name() {
        for address in
            ["127.0.0.1:80", "127.9.9.9", "localhost:1", "LocalHost", "[::1]:80", "[::1]"]
        {
            assert!(is_loopback(address), "{address}");
        }
        for address in ["127.0.0.1.example:80", "localhost.example", "[::2]", "10.0.0.1:80", ""] {
            assert!(!is_loopback(address), "{address}");
        }
    }
}
