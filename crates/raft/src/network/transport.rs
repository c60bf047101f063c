//! What carries connections: TCP, or a simulated network.

use std::fmt::Debug;
use std::io;
use std::net::IpAddr;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

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

/// The network of the system.
#[derive(Debug)]
pub(crate) struct Tcp;

impl Transport for Tcp {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Connection>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Connection)
        })
    }
}

impl Listener for TcpListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Connection, Option<IpAddr>)>> {
        Box::pin(async move {
            let (stream, peer) = TcpListener::accept(self).await?;
            stream.set_nodelay(true)?;
            Ok((Box::new(stream) as Connection, Some(peer.ip())))
        })
    }
}
