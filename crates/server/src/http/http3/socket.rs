//! One port for clients, over TCP and over UDP.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use rustix::net::sockopt;

use crate::error::ServerError;

/// How often a free port is looked for, when the system chooses.
const TRIES: usize = 16;
/// Room for datagrams that came while all threads were busy, as far as the system allows.
const BUFFER: usize = 2 << 20;

/// Binds an address over UDP and, with `bind`, over TCP. If the system chooses the port, it is one
/// that is free for both.
pub(crate) fn bind_both(
    address: SocketAddr,
    bind: impl Fn() -> Result<TcpListener, ServerError>,
) -> Result<(TcpListener, UdpSocket), ServerError> {
    let mut failure = None;
    for _ in 0..TRIES {
        let listener = bind()?;
        let bound = listener.local_addr().and_then(UdpSocket::bind);
        match bound {
            Ok(socket) => {
                let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER);
                let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER);
                return Ok((listener, socket));
            }
            Err(error) if address.port() == 0 && error.kind() == io::ErrorKind::AddrInUse => {
                failure = Some(error);
            }
            Err(error) => return Err(failed(address, error)),
        }
    }
    Err(failed(address, failure.unwrap_or_else(|| io::ErrorKind::AddrInUse.into())))
}

fn failed(address: SocketAddr, error: io::Error) -> ServerError {
    let what = format!(
        "cannot listen on {address} over UDP for HTTP/3 (--listen); --http3=off starts without it"
    );
    ServerError::Io(what, error)
}
