//! A client over TLS.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use esker_server::CertificateFiles;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::Protocol;
use crate::http_answer::HttpAnswer;

/// A client over TLS.
#[derive(Clone)]
pub struct TlsClient {
    config: ClientConfig,
    /// The name of the server in its certificate.
    name: String,
}

impl TlsClient {
    /// Creates a client that trusts this authority and shows this certificate.
    pub fn new(ca: &Path, own: Option<&CertificateFiles>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let builder = builder.with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let cert = CertificateDer::from_pem_file(&own.cert).unwrap();
                let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
                builder.with_client_auth_cert(vec![cert], key).unwrap()
            }
        };
        Self { config, name: "localhost".into() }
    }

    /// Wants this name of the server.
    pub fn for_name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Opens a connection.
    pub async fn connect(
        &self,
        address: &str,
        protocol: Protocol,
    ) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut config = self.config.clone();
        config.alpn_protocols = match protocol {
            Protocol::Http1 => vec![b"http/1.1".to_vec()],
            _ => vec![b"h2".to_vec()],
        };
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from(self.name.clone()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Sends a request over a connection of its own.
    pub async fn send(
        &self,
        address: &str,
        protocol: Protocol,
        request: Request<Full<Bytes>>,
    ) -> Result<HttpAnswer, Box<dyn std::error::Error + Send + Sync>> {
        let stream = self.connect(address, protocol).await?;
        exchange(TokioIo::new(stream), protocol, request).await
    }

    pub async fn get(&self, address: &str, path: &str) -> Option<HttpAnswer> {
        let request = Request::get(path).header("host", address);
        self.send(address, Protocol::Http1, request.body(Full::default()).unwrap()).await.ok()
    }
}

/// Sends a request without TLS.
pub async fn send_plain(
    address: &str,
    request: Request<Full<Bytes>>,
) -> Result<HttpAnswer, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    exchange(TokioIo::new(stream), Protocol::Http1, request).await
}

async fn exchange<S>(
    stream: TokioIo<S>,
    protocol: Protocol,
    request: Request<Full<Bytes>>,
) -> Result<HttpAnswer, Box<dyn std::error::Error + Send + Sync>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let answer = if protocol == Protocol::Http1 {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    } else {
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
        let (mut sender, connection) = handshake.await?;
        tokio::spawn(connection);
        sender.send_request(request).await?
    };
    let (head, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(HttpAnswer { status: head.status.as_u16(), headers: head.headers, body })
}
