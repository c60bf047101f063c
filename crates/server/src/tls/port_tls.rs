//! TLS on the port of clients.
//!
//! The port has up to two configurations: one for clients, and one for the nodes of the cluster,
//! which show the certificates of the connections between nodes. A caller chooses by the server
//! name of its first message: a name below [`DOMAIN`] is that of a node. The first byte of a
//! connection tells TLS from HTTP without it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::{Acceptor, ResolvesServerCert};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::error::ServerError;
use crate::idle::IDLE_TIMEOUT;
use crate::tls::client_ca::ClientCa;
use crate::tls::client_role::ConnectionAccess;
use crate::tls::configs::clients_config;
use crate::tls::peer_name::DOMAIN;
use crate::tls::peer_tls::{HttpVersion, PeerTls, begins_with_tls};
use crate::tls::port_stream::PortStream;
use crate::tls_refusals::{RefusalReason, TlsRefusals};

/// The time that a handshake may take, from the beginning of the connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of a request without TLS that are read before it is refused.
const REFUSED_REQUEST_BYTES: usize = 4096;
/// The beginning of the text by which nodes and clients recognize a port that speaks TLS alone.
pub(crate) const TLS_PORT_TEXT: &str = "this port speaks TLS";
/// The answer to HTTP on a port that speaks TLS alone.
const PLAIN_ANSWER: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
content-length: 62\r\nconnection: close\r\n\r\n\
this port speaks TLS: use https://, or start with --plain-http";

/// The configurations of the port of clients.
#[derive(Debug)]
pub(crate) struct PortTls {
    clients: Option<Arc<ServerConfig>>,
    nodes: Option<Arc<PeerTls>>,
    allows_plain: bool,
    refusals: Arc<TlsRefusals>,
}

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: PortStream,
    pub(crate) access: ConnectionAccess,
}

impl Accepted {
    fn plain(stream: TcpStream) -> Self {
        Self { stream: PortStream::Plain(stream), access: ConnectionAccess::plain() }
    }
}

impl PortTls {
    /// Creates the configurations of a port. With a certificate, clients use TLS, and with
    /// `allows_plain` they may do without. With `nodes`, nodes may use TLS whatever clients do.
    pub(crate) fn new(
        certificate: Option<Arc<dyn ResolvesServerCert>>,
        client_ca: Option<Arc<ClientCa>>,
        nodes: Option<Arc<PeerTls>>,
        allows_plain: bool,
        refusals: Arc<TlsRefusals>,
    ) -> Result<Self, ServerError> {
        let allows_plain = allows_plain || certificate.is_none();
        let config = |certificate| {
            let mut config = clients_config(certificate, client_ca.map(|ca| ca as _))
                .map_err(ServerError::Certificate)?;
            config.alpn_protocols = HttpVersion::protocols();
            Ok::<_, ServerError>(Arc::new(config))
        };
        let clients = certificate.map(config).transpose()?;
        Ok(Self { clients, nodes, allows_plain, refusals })
    }

    /// Accepts a connection: after the handshake, if the caller begins one. Returns `None` if it is
    /// refused, and reports it.
    ///
    /// With `is_limited`, the caller has no longer for its first byte than for a handshake.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        from: SocketAddr,
        is_limited: bool,
    ) -> Option<Accepted> {
        if self.clients.is_none() && self.nodes.is_none() {
            return Some(Accepted::plain(stream));
        }
        let begun = Instant::now();
        // A client without TLS may connect long before its request.
        let is_patient = self.allows_plain && !is_limited;
        let first_byte_timeout = if is_patient { IDLE_TIMEOUT } else { HANDSHAKE_TIMEOUT };
        match timeout(first_byte_timeout, begins_with_tls(&stream)).await {
            Ok(Ok(Some(true))) => {
                let begun = if is_patient { Instant::now() } else { begun };
                self.accept_tls(stream, from, begun + HANDSHAKE_TIMEOUT).await
            }
            Ok(Ok(Some(false))) if self.allows_plain => Some(Accepted::plain(stream)),
            Ok(Ok(Some(false))) => {
                self.refusals.report_client(from, RefusalReason::Plain, &"it speaks no TLS");
                drop(timeout_at(begun + HANDSHAKE_TIMEOUT, refuse_plain(stream)).await);
                None
            }
            // A check of whether the port is open, or an idle client.
            Ok(Ok(None) | Err(_)) => None,
            Err(_) if self.allows_plain => None,
            Err(_) => {
                self.report_timeout(from);
                None
            }
        }
    }

    async fn accept_tls(
        &self,
        stream: TcpStream,
        from: SocketAddr,
        deadline: Instant,
    ) -> Option<Accepted> {
        match timeout_at(deadline, self.handshake(stream)).await {
            Ok(Ok(Some(accepted))) => Some(accepted),
            Ok(Ok(None)) => {
                let why = "this node has no certificate for such a connection";
                self.refusals.report_client(from, RefusalReason::NoCertificate, &why);
                None
            }
            Ok(Err(error)) => {
                let reason = RefusalReason::from_handshake(&error);
                self.refusals.report_client(from, reason, &error);
                None
            }
            Err(_) => {
                self.report_timeout(from);
                None
            }
        }
    }

    fn report_timeout(&self, from: SocketAddr) {
        let why = "its handshake was not complete in time";
        self.refusals.report_client(from, RefusalReason::Timeout, &why);
    }

    /// Does the handshake; `None` without a certificate for it.
    async fn handshake(&self, stream: TcpStream) -> io::Result<Option<Accepted>> {
        let started = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let hello = started.client_hello();
        let is_node = hello.server_name().is_some_and(|name| name.ends_with(DOMAIN));
        if let Some(nodes) = self.nodes.as_ref().filter(|_| is_node) {
            let stream = started.into_stream(nodes.http_server()).await?;
            let name = nodes.check_caller(stream.get_ref().1)?;
            let access = ConnectionAccess::node(name.node, shown(&stream));
            return Ok(Some(Accepted { stream: PortStream::Tls(Box::new(stream)), access }));
        }
        let Some(config) = &self.clients else { return Ok(None) };
        let stream = started.into_stream(Arc::clone(config)).await?;
        let access = ConnectionAccess::client(shown(&stream));
        Ok(Some(Accepted { stream: PortStream::Tls(Box::new(stream)), access }))
    }
}

/// Returns the certificates that the caller showed.
fn shown(stream: &TlsStream<TcpStream>) -> &[CertificateDer<'static>] {
    stream.get_ref().1.peer_certificates().unwrap_or_default()
}

/// Answers a request without TLS, so that its client knows why.
async fn refuse_plain(mut stream: TcpStream) -> io::Result<()> {
    // An unread request would reset the connection before the answer is read.
    let mut request = [0; REFUSED_REQUEST_BYTES];
    let _length = stream.read(&mut request).await?;
    stream.write_all(PLAIN_ANSWER).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_without_tls_has_its_length() {
        let text = String::from_utf8_lossy(PLAIN_ANSWER);
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        assert!(text.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
        assert!(body.starts_with(TLS_PORT_TEXT), "{body}");
    }
}
