//! The listeners of clients: over TCP, and over UDP for HTTP/3.

use std::net::TcpListener;
#[cfg(feature = "http3")]
use std::net::UdpSocket;
use std::sync::Arc;

use tokio::sync::watch;

#[cfg(feature = "http3")]
use crate::certificate::Certificate;
use crate::error::ServerError;
use crate::http::listener;
#[cfg(feature = "http3")]
use crate::http::{client::Requests, http3, route};
use crate::options::ServerOptions;
use crate::port;
use crate::shared::Shared;
use crate::supervise::Tasks;

/// The ports of clients, bound.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) tcp: TcpListener,
    #[cfg(feature = "http3")]
    udp: Option<UdpSocket>,
    #[cfg(feature = "http3")]
    certificate: Option<Certificate>,
}

#[cfg(feature = "http3")]
impl Clients {
    /// Binds the ports, the one over TCP with `tcp`, and reads the operator's certificate.
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
        let certificate = Certificate::given(options)?;
        let (tcp, udp) = http3::bind_both(options.listen, tcp)?;
        Ok(Self { tcp, udp: Some(udp), certificate })
    }

    /// Reads or makes the certificate in the data folder, which is locked, for a node that clients
    /// reach at this address.
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
            self.certificate = Some(Certificate::own(options, &hosts)?);
        }
        Ok(())
    }

    /// Starts to answer, until `stop` and until all connections have ended. What runs beside the
    /// requests is put into `tasks`.
    pub(crate) fn serve(
        self,
        shared: Arc<Shared>,
        connections: usize,
        stop: watch::Receiver<bool>,
        tasks: &mut Tasks,
    ) -> Result<impl Future<Output = ()> + Send + use<>, ServerError> {
        let http3 = match (self.udp, self.certificate) {
            (Some(socket), Some(certificate)) => {
                let endpoint = http3::Endpoint::start(socket, certificate.current())?;
                let shared = Arc::clone(&shared);
                let watch = async move { certificate.watch(&shared.counters).await };
                tasks.spawn("watch the certificate", watch);
                Some(endpoint)
            }
            _ => None,
        };
        let tcp = listen(self.tcp)?;
        Ok(async move {
            let over_tcp = listener::serve(tcp, Arc::clone(&shared), connections, stop.clone());
            let Some(endpoint) = http3 else { return over_tcp.await };
            let counted = Arc::clone(&shared);
            let count = move |event| match event {
                http3::ConnectionEvent::Opened => counted.counters.connected_http3(1),
                http3::ConnectionEvent::Ended => counted.counters.connected_http3(-1),
                http3::ConnectionEvent::Refused => counted.is_full("h3", connections),
            };
            let over_udp = http3::serve(endpoint, connections, stop, count, move |from| {
                let requests = Requests::new(Arc::clone(&shared), from, false);
                let traffic = Arc::clone(&requests.client.traffic);
                let evicted = async move { traffic.evicted().await };
                (move |request| route::answer(Arc::clone(&requests), request), evicted)
            });
            tokio::join!(over_tcp, over_udp);
        })
    }
}

#[cfg(not(feature = "http3"))]
impl Clients {
    /// Binds the port.
    pub(crate) fn bind(
        options: &ServerOptions,
        tcp: impl Fn() -> Result<TcpListener, ServerError>,
    ) -> Result<Self, ServerError> {
        if options.http3 || options.certificate.is_some() {
            return Err(ServerError::Option(
                "this build has no HTTP/3: --http3=off, and no --cert".into(),
            ));
        }
        Ok(Self { tcp: tcp()? })
    }

    pub(crate) fn certify(&mut self, _: &ServerOptions, _: &str) -> Result<(), ServerError> {
        Ok(())
    }

    /// Starts to answer, until `stop` and until all connections have ended.
    pub(crate) fn serve(
        self,
        shared: Arc<Shared>,
        connections: usize,
        stop: watch::Receiver<bool>,
        _: &mut Tasks,
    ) -> Result<impl Future<Output = ()> + Send + use<>, ServerError> {
        Ok(listener::serve(listen(self.tcp)?, shared, connections, stop))
    }
}

fn listen(listener: TcpListener) -> Result<tokio::net::TcpListener, ServerError> {
    port::listen(&listener, "--listen")?;
    tokio::net::TcpListener::from_std(listener)
        .map_err(|error| ServerError::Io("no listener for clients".into(), error))
}
