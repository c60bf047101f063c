//! A client of HTTP/3 that keeps its connection.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use esker_server::CertificateFiles;
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use hyper::Request;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::http_answer::HttpAnswer;

pub type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Takes any certificate.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC has TLS 1.3".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = ring::default_provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A QUIC connection to this address. With `trusted`, PEM, the server has a certificate of it.
pub async fn connect(
    address: &str,
    name: &str,
    trusted: Option<&[u8]>,
) -> Result<(quinn::Endpoint, quinn::Connection), AnyError> {
    connect_as(address, name, trusted, None).await
}

/// A QUIC connection that shows this certificate.
async fn connect_as(
    address: &str,
    name: &str,
    trusted: Option<&[u8]>,
    own: Option<&CertificateFiles>,
) -> Result<(quinn::Endpoint, quinn::Connection), AnyError> {
    let provider = Arc::new(ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let tls = match trusted {
        None => tls.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate)),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(pem).unwrap())?;
            tls.with_root_certificates(roots)
        }
    };
    let mut tls = match own {
        None => tls.with_no_client_auth(),
        Some(own) => {
            let cert = CertificateDer::from_pem_file(&own.cert).unwrap();
            tls.with_client_auth_cert(vec![cert], PrivateKeyDer::from_pem_file(&own.key).unwrap())?
        }
    };
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let endpoint = quinn::Endpoint::client(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    let quic = endpoint.connect_with(config, address.parse()?, name)?.await?;
    Ok((endpoint, quic))
}

/// A connection.
pub struct Client {
    pub quic: quinn::Connection,
    pub sender: SendRequest<OpenStreams, Bytes>,
    address: String,
    _endpoint: quinn::Endpoint,
}

impl Client {
    /// Connects to the server at this address, with this certificate if there is one.
    pub async fn connect(address: &str, trusted: Option<&[u8]>) -> Result<Self, AnyError> {
        let (host, _) = address.rsplit_once(':').unwrap();
        Self::with_quic(address, connect(address, host, trusted).await?).await
    }

    /// Connects to the server at this address under this name, and shows this certificate.
    pub async fn connect_as(
        address: &str,
        name: &str,
        own: Option<&CertificateFiles>,
    ) -> Result<Self, AnyError> {
        Self::with_quic(address, connect_as(address, name, None, own).await?).await
    }

    async fn with_quic(
        address: &str,
        (endpoint, quic): (quinn::Endpoint, quinn::Connection),
    ) -> Result<Self, AnyError> {
        let http = h3_quinn::Connection::new(quic.clone());
        let (mut connection, sender) = h3::client::new(http).await?;
        tokio::spawn(async move {
            drop(std::future::poll_fn(|cx| connection.poll_close(cx)).await);
        });
        Ok(Self { quic, sender, address: address.into(), _endpoint: endpoint })
    }

    /// Names this host in requests.
    pub fn for_host(self, host: &str) -> Self {
        Self { address: host.into(), ..self }
    }

    /// The certificate of the server.
    pub fn certificate(&self) -> CertificateDer<'static> {
        let identity = self.quic.peer_identity().unwrap();
        identity.downcast::<Vec<CertificateDer<'static>>>().unwrap()[0].clone()
    }

    pub async fn get(&self, path: &str) -> Result<HttpAnswer, AnyError> {
        self.send("GET", path, &[], b"").await
    }

    /// Sends a request with these headers.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<HttpAnswer, AnyError> {
        let uri = format!("https://{}{path}", self.address);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut stream = self.sender.clone().send_request(request.body(())?).await?;
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body)).await?;
        }
        stream.finish().await?;
        let (head, ()) = stream.recv_response().await?.into_parts();
        let mut body = BytesMut::new();
        while let Some(mut part) = stream.recv_data().await? {
            let len = part.remaining();
            body.extend_from_slice(&part.copy_to_bytes(len));
        }
        Ok(HttpAnswer { status: head.status.as_u16(), headers: head.headers, body: body.freeze() })
    }
}
