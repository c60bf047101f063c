//! An authority of certificates, and clients that trust it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use esker_server::{CertificateFiles, PeerCertificateFiles};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::Protocol;
use crate::http_answer::HttpAnswer;

/// An authority, with the folder of its certificates.
pub struct Authority {
    dir: PathBuf,
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    pub fn new(dir: &Path, name: &str) -> Self {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        fs::write(dir.join("ca.pem"), pem).unwrap();
        Self { dir, params, key }
    }

    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// Makes a certificate with these names, which ends in an hour.
    pub fn issue(&self, file: &str, names: &[&str]) -> CertificateFiles {
        self.issue_until(file, names, 3600)
    }

    /// Makes a certificate with these names, which ends so many seconds from now.
    pub fn issue_until(&self, file: &str, names: &[&str], ends: i64) -> CertificateFiles {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let at = |seconds: u64| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        params.not_before = at(now - 7200);
        params.not_after = at(now.saturating_add_signed(ends));
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let cert = params.signed_by(&key, &issuer).unwrap();
        let [cert_file, key_file] =
            ["pem", "key"].map(|kind| self.dir.join(format!("{file}.{kind}")));
        fs::write(&cert_file, cert.pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        CertificateFiles { cert: cert_file, key: key_file }
    }

    /// Makes the certificate of a node for other nodes.
    pub fn peer(&self, node: u64, cluster: &str) -> PeerCertificateFiles {
        let names = [format!("node-{node}.{cluster}.esker.internal"), any_node(cluster)];
        let own = self.issue(&format!("{cluster}-{node}"), &names.each_ref().map(|name| &**name));
        PeerCertificateFiles { ca: self.ca(), own }
    }

    /// Makes the certificate of a server on loopback.
    pub fn server(&self) -> CertificateFiles {
        self.issue("server", &["localhost"])
    }
}

/// The name of all nodes of a cluster.
pub fn any_node(cluster: &str) -> String {
    format!("node.{cluster}.esker.internal")
}

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
