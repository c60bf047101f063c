//! What carries connections: TCP, or a simulated network.

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
    /// The next connection, and from where it came, if that is known. Cancel safe.
    ///
    /// # Errors
    /// Any: the caller tries again after a pause.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Connection, Option<IpAddr>)>>;
}

/// How long a peer may be silent before it is asked whether it is still there, how often it is
/// asked, and how long it may not answer.
const SILENT: Duration = Duration::from_secs(1);
const ASKED: u32 = 5;
const UNANSWERED: Duration = Duration::from_secs(6);

/// Sends without delay, and ends with an error when the peer is not there any more: a machine that
/// lost its power ends no connection.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENT)?;
    sockopt::set_tcp_keepintvl(stream, SILENT)?;
    sockopt::set_tcp_keepcnt(stream, ASKED)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(stream, UNANSWERED.as_millis() as u32)?;
    Ok(())
}

/// The network of the system.
#[derive(Debug)]
pub(crate) struct Tcp;

impl Transport for Tcp {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>> {
        Box::pin(async move {
            let stream = connect(address).await?;
            prepare(&stream)?;
            Ok(Box::new(stream) as Connection)
        })
    }
}

impl Listener for TcpListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Connection, Option<IpAddr>)>> {
        Box::pin(async move {
            let (stream, peer) = TcpListener::accept(self).await?;
            prepare(&stream)?;
            Ok((Box::new(stream) as Connection, Some(peer.ip())))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Of a peer whose machine lost its power nothing is heard, not even the end.
    #[tokio::test]
    async fn a_peer_that_is_gone_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert!(!sockopt::socket_keepalive(&near).unwrap());
        prepare(&near).unwrap();
        assert!(sockopt::socket_keepalive(&near).unwrap());
        let times = (sockopt::tcp_keepidle(&near).unwrap(), sockopt::tcp_keepintvl(&near).unwrap());
        assert_eq!(times, (SILENT, SILENT));
        assert_eq!(sockopt::tcp_keepcnt(&near).unwrap(), ASKED);
        #[cfg(target_os = "linux")]
        assert_eq!(sockopt::tcp_user_timeout(&near).unwrap(), 6_000);
    }
}
