//! The ports of clients: over TCP, and over UDP for HTTP/3.

#[cfg(feature = "http3")]
use std::net::UdpSocket;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

#[cfg(feature = "http3")]
use rustls::pki_types::CertificateDer;
use rustls::server::ResolvesServerCert;
#[cfg(feature = "http3")]
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::watch;

use crate::certificate::Certificate;
#[cfg(feature = "http3")]
use crate::error::BrokenInvariant;
use crate::error::ServerError;
use crate::http::listener;
#[cfg(feature = "http3")]
use crate::http::{client_connection::ConnectionState, http3, route};
use crate::node_state::NodeState;
use crate::options::ServerOptions;
use crate::port;
use crate::security::Security;
use crate::supervisor::Tasks;
#[cfg(feature = "http3")]
use crate::tls::ConnectionAccess;
use crate::tls::PortTls;

/// The ports of clients, bound.
#[derive(Debug)]
pub(crate) struct ClientPorts {
    tcp: TcpListener,
    tls: Arc<PortTls>,
    /// The operator's certificate; for HTTP/3 also that of the data folder.
    certificate: Option<Certificate>,
    #[cfg(feature = "http3")]
    udp: Option<UdpSocket>,
    #[cfg(feature = "http3")]
    client_ca: Option<Arc<dyn ClientCertVerifier>>,
}

impl ClientPorts {
    /// Returns the address of the port over TCP, which is also that over UDP.
    pub(crate) fn address(&self) -> Result<SocketAddr, ServerError> {
        port::local_address(&self.tcp)
    }

    /// Returns the port over TCP, for answers before the node runs.
    pub(crate) fn tcp(&self) -> &TcpListener {
        &self.tcp
    }

    /// Returns the TLS of the port over TCP.
    pub(crate) fn tls(&self) -> &Arc<PortTls> {
        &self.tls
    }
}

/// Reads the operator's certificate, if one is given, and configures TLS with it.
fn open_tls(
    options: &ServerOptions,
    security: &Security,
) -> Result<(Option<Certificate>, Arc<PortTls>), ServerError> {
    let certificate = Certificate::open_operators(options)?;
    let resolver = certificate.as_ref().map(|it| it.resolver() as Arc<dyn ResolvesServerCert>);
    let tls = security.port_tls(options, resolver)?;
    Ok((certificate, Arc::new(tls)))
}

/// Adds the task that watches the files of a certificate.
fn watch(certificate: Certificate, state: &Arc<NodeState>, tasks: &mut Tasks) {
    let state = Arc::clone(state);
    let watch = async move { certificate.watch(state.counters()).await };
    tasks.spawn("watch the certificate", watch);
}

#[cfg(feature = "http3")]
impl ClientPorts {
    /// Binds the ports, that of TCP with `tcp`, and reads the operator's certificate.
    pub(crate) fn bind(
        options: &ServerOptions,
        security: &Security,
        tcp: impl Fn() -> Result<TcpListener, ServerError>,
    ) -> Result<Self, ServerError> {
        let (certificate, tls) = open_tls(options, security)?;
        let (tcp, udp) = match options.http3 {
            true => http3::bind_both(options.listen, tcp).map(|(tcp, udp)| (tcp, Some(udp)))?,
            false => (tcp()?, None),
        };
        Ok(Self { tcp, tls, certificate, udp, client_ca: security.client_ca() })
    }

    /// Reads or makes the certificate in the data folder, which is locked. It names the host of
    /// `address`, where clients reach the node.
    pub(crate) fn certify(
        &mut self,
        options: &ServerOptions,
        address: &str,
    ) -> Result<(), ServerError> {
        if self.udp.is_some() && self.certificate.is_none() {
            let host = |address: &str| address.rsplit_once(':').map(|(host, _)| host.to_owned());
            let listens = Some(options.listen.ip()).filter(|ip| !ip.is_unspecified());
            let hosts = [host(address), listens.map(|ip| ip.to_string())];
            let hosts: Vec<_> = hosts.iter().flatten().map(|host| &**host).collect();
            self.certificate = Some(Certificate::open_data_dir(options, &hosts)?);
        }
        Ok(())
    }

    /// Answers clients until `stop`, and until all connections have ended. Tasks that run beside
    /// the requests are added to `tasks`.
    pub(crate) fn serve(
        self,
        state: Arc<NodeState>,
        connections: usize,
        stop: watch::Receiver<bool>,
        tasks: &mut Tasks,
    ) -> Result<impl Future<Output = ()> + Send + use<>, ServerError> {
        let http3 = match (self.udp, &self.certificate) {
            (Some(socket), Some(certificate)) => {
                Some(http3::Endpoint::start(socket, certificate.resolver(), self.client_ca)?)
            }
            (None, _) => None,
            (Some(_), None) => {
                return Err(ServerError::internal(BrokenInvariant("HTTP/3 has a certificate")));
            }
        };
        if let Some(certificate) = self.certificate {
            watch(certificate, &state, tasks);
        }
        let (tcp, tls) = (listen(self.tcp)?, self.tls);
        Ok(async move {
            let over_tcp = listener::serve(tcp, tls, Arc::clone(&state), connections, stop.clone());
            let Some(endpoint) = http3 else { return over_tcp.await };
            tokio::join!(over_tcp, serve_http3(endpoint, state, connections, stop));
        })
    }
}

/// Answers clients over HTTP/3 until `stop`, and until all connections have ended.
#[cfg(feature = "http3")]
async fn serve_http3(
    endpoint: http3::Endpoint,
    state: Arc<NodeState>,
    connections: usize,
    stop: watch::Receiver<bool>,
) {
    let counted = Arc::clone(&state);
    let count = move |event| match event {
        http3::ConnectionEvent::Opened => counted.counters().open_http3_connection(),
        http3::ConnectionEvent::Ended => counted.counters().close_http3_connection(),
        http3::ConnectionEvent::RequestPanicked => counted.counters().count_panic(),
        http3::ConnectionEvent::Refused => counted.count_over_limit("h3", connections),
        http3::ConnectionEvent::Failed(from, failed) => {
            counted.counters().tls_refusals.report_client(from, failed.reason, &failed.why);
        }
    };
    let handler = move |from, shown: &[CertificateDer<'static>]| {
        let access = ConnectionAccess::client(shown);
        let connection = ConnectionState::new(Arc::clone(&state), from, access, false);
        let traffic = Arc::clone(connection.client().traffic());
        let evicted = async move { traffic.evicted().await };
        (move |request| route::answer(Arc::clone(&connection), request), evicted)
    };
    http3::serve(endpoint, connections, stop, count, handler).await;
}

#[cfg(not(feature = "http3"))]
impl ClientPorts {
    /// Binds the port, and reads the operator's certificate.
    pub(crate) fn bind(
        options: &ServerOptions,
        security: &Security,
        tcp: impl Fn() -> Result<TcpListener, ServerError>,
    ) -> Result<Self, ServerError> {
        if options.http3 {
            let why = "this build has no HTTP/3: --http3=off";
            return Err(ServerError::InvalidOption(why.into()));
        }
        let (certificate, tls) = open_tls(options, security)?;
        Ok(Self { tcp: tcp()?, tls, certificate })
    }

    pub(crate) fn certify(&mut self, _: &ServerOptions, _: &str) -> Result<(), ServerError> {
        Ok(())
    }

    /// Answers clients until `stop`, and until all connections have ended.
    pub(crate) fn serve(
        self,
        state: Arc<NodeState>,
        connections: usize,
        stop: watch::Receiver<bool>,
        tasks: &mut Tasks,
    ) -> Result<impl Future<Output = ()> + Send + use<>, ServerError> {
        if let Some(certificate) = self.certificate {
            watch(certificate, &state, tasks);
        }
        Ok(listener::serve(listen(self.tcp)?, self.tls, state, connections, stop))
    }
}

fn listen(listener: TcpListener) -> Result<tokio::net::TcpListener, ServerError> {
    port::listen(&listener, "--listen")?;
    tokio::net::TcpListener::from_std(listener)
        .map_err(|error| ServerError::Io("no listener for clients".into(), error))
}
