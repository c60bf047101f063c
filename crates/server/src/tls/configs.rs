//! rustls's configurations, from the files of certificates.

use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::certificate::read_pem;
use crate::tls::system_clock::SystemClock;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Reads the certificates of an authority.
///
/// # Errors
/// The reason why the file has none.
pub(crate) fn read_roots(path: &Path) -> Result<(Vec<u8>, Arc<RootCertStore>), String> {
    let pem = read_pem(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let pem = pem.unwrap_or_default();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        added.map_err(|why| format!("{}: {why}", path.display()))?;
    }
    if roots.is_empty() {
        return Err(format!("{} has no certificate of an authority", path.display()));
    }
    Ok((pem, Arc::new(roots)))
}

/// Creates a verifier of certificates of `roots`, without which no caller is accepted.
pub(crate) fn client_verifier(
    roots: Arc<RootCertStore>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
    verifier.map_err(|error| format!("certificates cannot be verified: {error}"))
}

/// Verifies a caller's certificate at this time, with those that it showed for it.
///
/// # Errors
/// The reason why it is not valid.
pub(crate) fn verify_chain(
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'_>],
    at: UnixTime,
) -> Result<(), String> {
    let (own, authorities) = chain.split_first().ok_or("there is no certificate")?;
    let verified = verifier.verify_client_cert(own, authorities, at);
    verified.map(|_| ()).map_err(|error| error.to_string())
}

/// The side of a connection between nodes that opened it. It shows `key`, and trusts `roots`.
pub(crate) fn node_client_config(
    roots: Arc<RootCertStore>,
    key: Arc<CertifiedKey>,
) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_details(provider(), Arc::new(SystemClock))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?;
    let resolver = Arc::new(SingleCertAndKey::from(key));
    let mut config = builder.with_root_certificates(roots).with_client_cert_resolver(resolver);
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// The side of a connection between nodes that accepted it. It shows `key`, and the other side
/// needs a certificate of `roots`.
pub(crate) fn node_server_config(
    roots: Arc<RootCertStore>,
    key: Arc<CertifiedKey>,
) -> Result<ServerConfig, String> {
    server_config(Some(client_verifier(roots)?), Arc::new(SingleCertAndKey::from(key)))
}

/// The side of a connection of a client that accepted it. With an authority, the client needs a
/// certificate of it.
pub(crate) fn clients_config(
    certificate: Arc<dyn ResolvesServerCert>,
    client_ca: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, String> {
    server_config(client_ca, certificate)
}

fn server_config(
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    certificate: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, String> {
    let builder = ServerConfig::builder_with_details(provider(), Arc::new(SystemClock))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?;
    let builder = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    // Without early data: a request that is sent twice is answered once.
    let mut config = builder.with_cert_resolver(certificate);
    // A resumed connection would show no certificate, which may have ended meanwhile.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
