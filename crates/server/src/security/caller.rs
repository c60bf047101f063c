//! The connections of this node to others over HTTP.

use std::io;
use std::sync::Arc;

use esker_raft::{Connection, PeerSecurity};
use hyper::header::HeaderValue;

use crate::security::admin_tokens::AdminTokens;
use crate::tls::{HttpVersion, PeerTls};

/// Connects to nodes over HTTP: as this node, or as a client of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller {
    peers: Option<Arc<PeerTls>>,
    tokens: Option<Arc<AdminTokens>>,
}

/// A connection to a node.
pub(crate) struct CallConnection {
    pub(crate) stream: Connection,
    /// The value of `Authorization` for requests that change the cluster, where no certificate
    /// shows that a node asks.
    pub(crate) authorization: Option<HeaderValue>,
}

impl Caller {
    /// Creates the caller of a node with these certificates, and these tokens for nodes that get no
    /// certificate.
    pub(crate) fn new(peers: Option<Arc<PeerTls>>, tokens: Option<Arc<AdminTokens>>) -> Self {
        Self { peers, tokens }
    }

    /// Connects to the node at this address: over TLS, if this node has certificates. With
    /// `--plain-peers` a node without TLS is called, too, but gets no token: a stranger that
    /// breaks the handshake would read it.
    pub(crate) async fn connect(
        &self,
        address: &str,
        version: HttpVersion,
    ) -> io::Result<CallConnection> {
        let stream = esker_raft::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(peers) = &self.peers else { return Ok(self.plain(stream)) };
        match peers.connect_http(stream, version).await {
            Ok(stream) => Ok(CallConnection { stream, authorization: None }),
            Err(_) if peers.allows_plain() => {
                let stream = esker_raft::connect(address).await?;
                Ok(CallConnection { stream: Box::new(stream), authorization: None })
            }
            Err(error) => Err(io::Error::new(error.kind(), format!("no TLS of a node: {error}"))),
        }
    }

    fn plain(&self, stream: tokio::net::TcpStream) -> CallConnection {
        let authorization = self.tokens.as_ref().and_then(|tokens| tokens.authorization());
        CallConnection { stream: Box::new(stream), authorization }
    }

    /// Whether this node has certificates for calls of other nodes.
    pub(crate) fn has_certificates(&self) -> bool {
        self.peers.is_some()
    }

    /// Returns the end of this node's certificate, in seconds since 1970.
    pub(crate) fn certificate_ends(&self) -> Option<u64> {
        self.peers.as_ref().map(|peers| peers.not_after_seconds())
    }
}
