//! The ports of clients: over TCP, and over UDP for HTTP/3.

#[cfg(feature = "http3")]
use std::net::UdpSocket;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::sync::watch;

#[cfg(feature = "http3")]
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
use crate::supervisor::Tasks;

/// The ports of clients, bound.
#[derive(Debug)]
pub(crate) struct ClientPorts {
    tcp: TcpListener,
    #[cfg(feature = "http3")]
    udp: Option<UdpSocket>,
    #[cfg(feature = "http3")]
    certificate: Option<Certificate>,
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
}

#[cfg(feature = "http3")]
impl ClientPorts {
    /// Binds the ports, that of TCP with `tcp`, and reads the operator's certificate.
    pub(crate) fn bind(
        options: &ServerOptions,
        tcp: impl Fn() -> Result<TcpListener, ServerError>,
    ) -> Result<Self, ServerError> {
        if !options.http3 {
            if let Some(files) = &options.certificate {
                let cert = files.cert.display();
                tracing::warn!(%cert, "HTTP/3 is off: no client gets the certificate");
            }
            return Ok(Self { tcp: tcp()?, udp: None, certificate: None });
        }
        let certificate = Certificate::open_operators(options)?;
        let (tcp, udp) = http3::bind_both(options.listen, tcp)?;
        Ok(Self { tcp, udp: Some(udp), certificate })
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
        let http3 = match (self.udp, self.certificate) {
            (Some(socket), Some(certificate)) => {
                let endpoint = http3::Endpoint::start(socket, certificate.resolver())?;
                let state = Arc::clone(&state);
                let watch = async move { certificate.watch(state.counters()).await };
                tasks.spawn("watch the certificate", watch);
                Some(endpoint)
            }
            (None, None) => None,
            _ => {
                return Err(ServerError::internal(BrokenInvariant(
                    "HTTP/3 has a port and a certificate, or neither",
                )));
            }
        };
        let tcp = listen(self.tcp)?;
        Ok(async move {
            let over_tcp = listener::serve(tcp, Arc::clone(&state), connections, stop.clone());
            let Some(endpoint) = http3 else { return over_tcp.await };
            let counted = Arc::clone(&state);
            let count = move |event| match event {
                http3::ConnectionEvent::Opened => counted.counters().open_http3_connection(),
                http3::ConnectionEvent::Ended => counted.counters().close_http3_connection(),
                http3::ConnectionEvent::RequestPanicked => counted.counters().count_panic(),
                http3::ConnectionEvent::Refused => counted.count_over_limit("h3", connections),
            };
            let over_udp = http3::serve(endpoint, connections, stop, count, move |from| {
                let connection = ConnectionState::new(Arc::clone(&state), from, false);
                let traffic = Arc::clone(connection.client().traffic());
                let evicted = async move { traffic.evicted().await };
                (move |request| route::answer(Arc::clone(&connection), request), evicted)
            });
            tokio::join!(over_tcp, over_udp);
        })
    }
}

#[cfg(not(feature = "http3"))]
impl ClientPorts {
    /// Binds the port.
    pub(crate) fn bind(
        options: &ServerOptions,
        tcp: impl Fn() -> Result<TcpListener, ServerError>,
    ) -> Result<Self, ServerError> {
        if options.http3 || options.certificate.is_some() {
            return Err(ServerError::InvalidOption(
                "this build has no HTTP/3: --http3=off, and no --cert".into(),
            ));
        }
        Ok(Self { tcp: tcp()? })
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
        _: &mut Tasks,
    ) -> Result<impl Future<Output = ()> + Send + use<>, ServerError> {
        Ok(listener::serve(listen(self.tcp)?, state, connections, stop))
    }
}

fn listen(listener: TcpListener) -> Result<tokio::net::TcpListener, ServerError> {
    port::listen(&listener, "--listen")?;
    tokio::net::TcpListener::from_std(listener)
        .map_err(|error| ServerError::Io("no listener for clients".into(), error))
}
