//! The carrier of connections: TCP, or a simulated network.

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::network::connect::connect;

/// Bytes in both directions, in their order.
pub trait Stream: AsyncRead + AsyncWrite + Debug + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Debug + Send + Sync + Unpin> Stream for S {}

/// A connection to another node.
pub type Connection = Box<dyn Stream>;

/// Opens connections.
pub trait Transport: Debug + Send + Sync {
    /// Connects to the node at this address, host and port. The caller has a deadline.
    ///
    /// # Errors
    /// Any: the node cannot be reached.
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>>;
}

/// Takes connections.
pub trait Listener: Debug + Send {
    /// Waits for the next connection. Returns it with the address of the caller, if that is known.
    /// Cancel safe.
    ///
    /// # Errors
    /// Any: the caller tries again after a pause.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Connection, Option<IpAddr>)>>;
}

/// The silence of a peer after which it is probed, and the interval of probes; the number of probes
/// without an answer, and the time without an acknowledgement, after which the connection ends.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_PROBES_MAX: u32 = 5;
const UNACKED_DATA_TIMEOUT: Duration = Duration::from_secs(6);

// The system ends a connection at the first of the two limits: the probes come before it.
const _: () = assert!(
    KEEPALIVE_INTERVAL.as_millis() * (KEEPALIVE_PROBES_MAX as u128)
        < UNACKED_DATA_TIMEOUT.as_millis()
);
const _: () = assert!(UNACKED_DATA_TIMEOUT.as_millis() <= u32::MAX as u128);

/// Makes a socket send without delay, and fail when the peer is gone: a machine that lost its power
/// ends no connection.
fn set_socket_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES_MAX)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(stream, UNACKED_DATA_TIMEOUT.as_millis() as u32)?;
    Ok(())
}

/// The network of the system.
#[derive(Debug)]
pub(crate) struct TcpTransport;

impl Transport for TcpTransport {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>> {
        Box::pin(async move {
            let stream = connect(address).await?;
            set_socket_options(&stream)?;
            Ok(Box::new(stream) as Connection)
        })
    }
}

impl Listener for TcpListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Connection, Option<IpAddr>)>> {
        Box::pin(async move {
            let (stream, peer) = TcpListener::accept(self).await?;
            set_socket_options(&stream)?;
            Ok((Box::new(stream) as Connection, Some(peer.ip())))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A peer whose machine lost its power sends nothing, not even the end of the connection.
    #[tokio::test]
    async fn a_peer_that_is_gone_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(!sockopt::socket_keepalive(&near).unwrap());
        set_socket_options(&near).unwrap();
        assert!(sockopt::socket_keepalive(&near).unwrap());
        let times = (sockopt::tcp_keepidle(&near).unwrap(), sockopt::tcp_keepintvl(&near).unwrap());
        assert_eq!(times, (KEEPALIVE_INTERVAL, KEEPALIVE_INTERVAL));
        assert_eq!(sockopt::tcp_keepcnt(&near).unwrap(), KEEPALIVE_PROBES_MAX);
        #[cfg(target_os = "linux")]
        assert_eq!(sockopt::tcp_user_timeout(&near).unwrap(), 6_000);
    }
}
