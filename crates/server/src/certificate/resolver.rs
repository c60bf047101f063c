//! The certificate of new connections.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificate and the key of new connections.
#[derive(Debug)]
pub(crate) struct CertificateResolver(RwLock<Arc<CertifiedKey>>);

impl CertificateResolver {
    pub(crate) fn new(key: Arc<CertifiedKey>) -> Self {
        debug_assert!(!key.cert.is_empty(), "a key has a certificate");
        Self(RwLock::new(key))
    }

    pub(crate) fn replace(&self, key: Arc<CertifiedKey>) {
        debug_assert!(!key.cert.is_empty(), "a key has a certificate");
        *self.0.write() = key;
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read()))
    }
}
