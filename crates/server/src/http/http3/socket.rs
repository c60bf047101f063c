//! The port of clients, over TCP and over UDP.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use rustix::net::sockopt;

use crate::error::ServerError;

/// The most attempts to find a free port, when the system chooses it.
const BIND_ATTEMPTS: usize = 16;
/// The buffer of datagrams that are received while all threads are busy, as far as the system
/// allows.
const SOCKET_BUFFER_BYTES: usize = 2 << 20;

const _: () = assert!(BIND_ATTEMPTS > 0);

/// Binds an address over UDP and, with `bind`, over TCP. If the system chooses the port, it is one
/// that is free for both.
pub(crate) fn bind_both(
    address: SocketAddr,
    bind: impl Fn() -> Result<TcpListener, ServerError>,
) -> Result<(TcpListener, UdpSocket), ServerError> {
    let mut failure = None;
    for _ in 0..BIND_ATTEMPTS {
        let listener = bind()?;
        let bound = listener.local_addr().and_then(UdpSocket::bind);
        match bound {
            Ok(socket) => {
                let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES);
                let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES);
                return Ok((listener, socket));
            }
            Err(error) if address.port() == 0 && error.kind() == io::ErrorKind::AddrInUse => {
                failure = Some(error);
            }
            Err(error) => return Err(listen_error(address, error)),
        }
    }
    Err(listen_error(address, failure.unwrap_or_else(|| io::ErrorKind::AddrInUse.into())))
}

fn listen_error(address: SocketAddr, error: io::Error) -> ServerError {
    let what = format!(
        "cannot listen on {address} over UDP for HTTP/3 (--listen); --http3=off starts without it"
    );
    ServerError::Io(what, error)
}
