//! The endpoint of clients over QUIC.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response};
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{EndpointConfig, IdleTimeout, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use rustls::pki_types::CertificateDer;
use rustls::server::ResolvesServerCert;
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::certificate::{CertificateResolver, make_loopback_certificate};
use crate::error::ServerError;
use crate::http::answer::Answer;
use crate::http::http3::connection;
use crate::http::http3::handshake::{self, FailedHandshake, shown_certificates};
use crate::idle::IDLE_TIMEOUT;
use crate::options::STREAMS_MAX;
use crate::tls::clients_config;

/// The most streams of a client beside those of requests: control, two for the compression of
/// headers, and some that are ignored.
const CONTROL_STREAMS_MAX: u32 = 8;
/// The flow control of a request, of a connection's requests, and of its answers.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
const SEND_WINDOW_BYTES: u64 = 256 << 10;
/// The connections that wait to be accepted, and the bytes that were received for them.
const BACKLOG_CONNECTIONS: usize = 1024;
const BACKLOG_BYTES: u64 = 16 << 20;
/// The handshakes at a time from which a client has to show first that its address is its own.
const HANDSHAKES_MAX: usize = 64;
/// The time that clients may take to notice that the node ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

const _: () = assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);

/// The endpoint of HTTP/3 on its port.
#[derive(Debug)]
pub(crate) struct Endpoint(quinn::Endpoint);

impl Endpoint {
    /// Answers on a socket, on the tokio runtime that this is called from.
    pub(crate) fn start(
        socket: UdpSocket,
        certificate: Arc<dyn ResolvesServerCert>,
        client_ca: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<Self, ServerError> {
        let failed = |error: io::Error| ServerError::Io("cannot start HTTP/3".into(), error);
        let config =
            config(certificate, client_ca).map_err(|error| failed(io::Error::other(error)))?;
        let runtime = Arc::new(TokioRuntime);
        let endpoint =
            quinn::Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime);
        Ok(Self(endpoint.map_err(failed)?))
    }
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

fn config(
    certificate: Arc<dyn ResolvesServerCert>,
    client_ca: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, AnyError> {
    let mut tls = clients_config(certificate, client_ca)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(STREAMS_MAX.into())
        .max_concurrent_uni_streams(CONTROL_STREAMS_MAX.into())
        .max_idle_timeout(Some(IdleTimeout::try_from(IDLE_TIMEOUT)?))
        .stream_receive_window(STREAM_WINDOW_BYTES.into())
        .receive_window(CONNECTION_WINDOW_BYTES.into())
        .send_window(SEND_WINDOW_BYTES)
        .datagram_receive_buffer_size(None);
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config
        .transport_config(Arc::new(transport))
        .max_incoming(BACKLOG_CONNECTIONS)
        .incoming_buffer_size_total(BACKLOG_BYTES);
    Ok(config)
}

/// An event of a connection.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    Opened,
    Ended,
    /// The connection is beyond the limit.
    Refused,
    /// The handshake with the client at this address failed.
    Failed(SocketAddr, FailedHandshake),
    /// A request panicked, and ended the connection.
    RequestPanicked,
}

/// Serves connections until `stop`, and then until all of them have ended.
///
/// `count` is called for each event. `handler` takes the address of a client, which may move later,
/// and the certificates that it showed. It returns the handler of its requests, and a future that
/// ends the connection.
pub(crate) async fn serve<H, A, E, F>(
    endpoint: Endpoint,
    connections: usize,
    mut stop: watch::Receiver<bool>,
    count: impl Fn(ConnectionEvent) + Clone + Send + 'static,
    handler: H,
) where
    H: Fn(SocketAddr, &[CertificateDer<'static>]) -> (A, E) + Clone + Send + 'static,
    A: Fn(Request<Full<Bytes>>) -> F + Clone + Send + 'static,
    E: Future<Output = ()> + Send + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let Endpoint(endpoint) = endpoint;
    let mut open = JoinSet::new();
    // Each handshake holds a clone.
    let handshakes = Arc::new(());
    loop {
        let incoming = tokio::select! {
            incoming = endpoint.accept() => incoming,
            Some(_) = open.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Some(incoming) = incoming else { break };
        let is_crowded = Arc::strong_count(&handshakes) > HANDSHAKES_MAX;
        if open.len() >= connections.max(1) {
            // Clients learn it at once, health checks too.
            incoming.refuse();
            count(ConnectionEvent::Refused);
        } else if is_crowded && !incoming.remote_address_validated() && incoming.may_retry() {
            drop(incoming.retry());
        } else {
            let (pending, stop) = (Arc::clone(&handshakes), stop.clone());
            let (handler, guard) = (handler.clone(), ConnectionGuard::new(count.clone()));
            open.spawn(async move {
                let from = incoming.remote_address();
                let accepted = handshake::accept(incoming).await;
                drop(pending);
                let quic = match accepted {
                    Ok(quic) => quic,
                    Err(failed) => return guard.report(ConnectionEvent::Failed(from, failed)),
                };
                let (handler, evicted) = handler(from, &shown_certificates(&quic));
                let served = connection::serve(quic, stop, handler, evicted).await;
                if let Err(connection::RequestPanicked) = served {
                    guard.report(ConnectionEvent::RequestPanicked);
                }
            });
        }
    }
    endpoint.set_server_config(None);
    while open.join_next().await.is_some() {}
    endpoint.close(VarInt::from_u32(0x100), b"");
    drop(tokio::time::timeout(CLOSE_TIMEOUT, endpoint.wait_idle()).await);
}

/// An open connection. Its end is counted when this is dropped, also by a panic.
struct ConnectionGuard<C: Fn(ConnectionEvent)>(C);

impl<C: Fn(ConnectionEvent)> ConnectionGuard<C> {
    fn new(count: C) -> Self {
        count(ConnectionEvent::Opened);
        Self(count)
    }

    fn report(&self, event: ConnectionEvent) {
        (self.0)(event);
    }
}

impl<C: Fn(ConnectionEvent)> Drop for ConnectionGuard<C> {
    fn drop(&mut self) {
        (self.0)(ConnectionEvent::Ended);
    }
}

/// Starts the same server with a constant answer, on a port of loopback: the floor of benchmarks.
/// Returns the port, and a future that serves until it is dropped.
///
/// # Errors
/// [`ServerError`] without a port or a certificate.
pub fn static_http3(body: Bytes) -> Result<(u16, impl Future<Output = ()>), ServerError> {
    let failed = |error| ServerError::Io("cannot start HTTP/3".into(), error);
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    let port = socket.local_addr().map_err(failed)?.port();
    let certificate = CertificateResolver::new(make_loopback_certificate(SystemTime::now())?);
    let endpoint = Endpoint::start(socket, Arc::new(certificate), None)?;
    let serving = async move {
        let (_running, stop) = watch::channel(false);
        let handler = move |_| std::future::ready(Response::new(body.clone().into()));
        let handler =
            move |_, _: &[CertificateDer<'static>]| (handler.clone(), std::future::pending());
        serve(endpoint, usize::MAX, stop, |_| {}, handler).await;
    };
    Ok((port, serving))
}
