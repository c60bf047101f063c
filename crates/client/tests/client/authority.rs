//! Certificates for tests, and TLS in front of a node.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use esker_client::TlsOptions;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// An authority, and the folder of its files.
pub struct Authority {
    dir: TempDir,
    issuer: Issuer<'static, KeyPair>,
    files: AtomicU64,
}

/// The files of a certificate and of its key.
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new() -> Self {
        let (dir, key) = (tempfile::tempdir().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority for tests");
        fs::write(dir.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { dir, issuer: Issuer::new(params, key), files: AtomicU64::new(0) }
    }

    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// A certificate for these hosts.
    pub fn pair(&self, hosts: &[&str]) -> Pair {
        self.changed_pair(hosts, |_| {})
    }

    pub fn changed_pair(&self, hosts: &[&str], change: fn(&mut CertificateParams)) -> Pair {
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let (mut params, key) =
            (CertificateParams::new(hosts).unwrap(), KeyPair::generate().unwrap());
        change(&mut params);
        let file = |kind: &str| {
            self.dir.path().join(format!("{kind}-{}.pem", self.files.fetch_add(1, SeqCst)))
        };
        let pair = Pair { certificate: file("certificate"), key: file("key") };
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(&pair.certificate, signed.pem()).unwrap();
        fs::write(&pair.key, key.serialize_pem()).unwrap();
        pair
    }

    /// The options of a client that trusts this authority.
    pub fn options(&self) -> TlsOptions {
        TlsOptions::new().ca_file(self.ca())
    }

    /// A configuration for nodes. With an authority of clients, these need a certificate of it.
    pub fn server(&self, pair: &Pair, clients: Option<&Authority>) -> ServerConfig {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap();
        let chain = vec![CertificateDer::from_pem_file(&pair.certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_file(&pair.key).unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_file(clients.ca()).unwrap()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.unwrap())
            }
        };
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }
}

/// Speaks TLS in front of the node at the address `plain`, and returns its own address.
pub async fn tls_front(plain: &str, config: ServerConfig) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (acceptor, plain) = (TlsAcceptor::from(Arc::new(config)), plain.to_owned());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, plain) = (acceptor.clone(), plain.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let Ok(mut behind) = TcpStream::connect(plain).await else { return };
                drop(copy_bidirectional(&mut stream, &mut behind).await);
            });
        }
    });
    address
}
