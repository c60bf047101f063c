//! The carrier of connections: TCP, or a simulated network.

use std::fmt::{self, Debug};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
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
    /// Connects to node `to` at this address, host and port. The caller has a deadline.
    ///
    /// # Errors
    /// Any: the node cannot be reached, or is not proven to be node `to`.
    fn connect<'a>(&'a self, address: &'a str, to: u64) -> BoxFuture<'a, io::Result<Connection>>;
}

/// Takes connections.
pub trait Listener: Debug + Send {
    /// Waits for the next connection. Cancel safe.
    ///
    /// # Errors
    /// Any: the caller tries again after a pause.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<IncomingConnection>>;
}

/// A connection that another node, or a stranger, has opened.
pub struct IncomingConnection {
    /// The address of the caller, if that is known.
    pub peer: Option<IpAddr>,
    /// Secures the connection. The server has a deadline for it.
    pub opening: BoxFuture<'static, io::Result<SecuredConnection>>,
}

impl fmt::Debug for IncomingConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingConnection").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// A connection that another node has opened, ready for its handshake.
#[derive(Debug)]
pub struct SecuredConnection {
    /// The connection.
    pub stream: Connection,
    /// The number of the caller, where it is proven. Its handshake must have the same.
    pub node: Option<u64>,
}

/// Encrypts the connections between nodes, and proves which node is at the other end.
///
/// The callers have deadlines, and drop a future that takes too long.
pub trait PeerSecurity: Debug + Send + Sync {
    /// Secures a connection that this node opened to node `to`.
    ///
    /// # Errors
    /// Any: the node at the other end is not proven to be node `to` of the same cluster.
    fn connect(&self, stream: TcpStream, to: u64) -> BoxFuture<'static, io::Result<Connection>>;

    /// Secures a connection that another node opened.
    ///
    /// # Errors
    /// Any: the caller is not proven to be a node of the same cluster.
    fn accept(&self, stream: TcpStream) -> BoxFuture<'static, io::Result<SecuredConnection>>;

    /// Whether a node that cannot be connected to securely is connected to without security, as
    /// long as not all nodes of the cluster have it.
    fn allows_plain(&self) -> bool;
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

/// The network of the system. Without `security`, bytes are neither encrypted nor authenticated.
#[derive(Debug, Clone, Default)]
pub(crate) struct TcpTransport {
    pub(crate) security: Option<Arc<dyn PeerSecurity>>,
}

impl Transport for TcpTransport {
    fn connect<'a>(&'a self, address: &'a str, to: u64) -> BoxFuture<'a, io::Result<Connection>> {
        Box::pin(async move {
            let stream = open(address).await?;
            let Some(security) = &self.security else { return Ok(Box::new(stream) as Connection) };
            match security.connect(stream, to).await {
                Err(_) if security.allows_plain() => Ok(Box::new(open(address).await?) as _),
                secured => secured,
            }
        })
    }
}

async fn open(address: &str) -> io::Result<TcpStream> {
    let stream = connect(address).await?;
    set_socket_options(&stream)?;
    Ok(stream)
}

/// The listener of a port of the system.
#[derive(Debug)]
pub(crate) struct NodeListener {
    pub(crate) port: TcpListener,
    pub(crate) security: Option<Arc<dyn PeerSecurity>>,
}

impl Listener for NodeListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<IncomingConnection>> {
        Box::pin(async move {
            let (stream, peer) = self.port.accept().await?;
            set_socket_options(&stream)?;
            let opening = match &self.security {
                Some(security) => security.accept(stream),
                None => {
                    let plain = SecuredConnection { stream: Box::new(stream), node: None };
                    Box::pin(std::future::ready(Ok(plain)))
                }
            };
            Ok(IncomingConnection { peer: Some(peer.ip()), opening })
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
