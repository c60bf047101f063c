//! The authority of client certificates, which is read again when its file changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::error::ServerError;
use crate::reload::ReloadedFiles;
use crate::tls::configs::{client_verifier, read_roots, verify_chain};

/// The authority of client certificates: without one of its certificates, no client is answered.
#[derive(Debug)]
pub(crate) struct ClientCa(ReloadedFiles<PathBuf, Authority>);

/// The authority, and the contents of the file that it is from.
#[derive(Debug)]
struct Authority {
    pem: Vec<u8>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl Authority {
    fn read(path: &Path) -> Result<Self, String> {
        let (pem, roots) = read_roots(path)?;
        Ok(Self { pem, verifier: client_verifier(roots)? })
    }
}

impl ClientCa {
    /// Reads the file.
    ///
    /// # Errors
    /// [`ServerError::InvalidOption`]: the file has no authority, with the reason.
    pub(crate) fn open(path: &Path) -> Result<Self, ServerError> {
        let opened = ReloadedFiles::open(path.to_owned(), |path| Authority::read(path));
        opened.map(Self).map_err(|why| ServerError::InvalidOption(format!("--client-ca: {why}")))
    }

    /// Reads the file again. From then on, certificates are verified with the authority that it
    /// has.
    ///
    /// # Errors
    /// The reason why the authority before stays.
    pub(crate) fn refresh(&self) -> Result<(), String> {
        if self.0.refresh(|_| Ok(()))? {
            let file = self.0.files().display();
            tracing::info!(%file, "verifies clients with a new authority");
        }
        Ok(())
    }

    /// Verifies the certificate of a client at this time, with the certificates that it showed for
    /// it.
    ///
    /// # Errors
    /// The reason why it is not valid.
    pub(crate) fn verify(&self, chain: &[CertificateDer<'_>], at: UnixTime) -> Result<(), String> {
        verify_chain(&*self.0.current().verifier, chain, at)
    }
}

/// Verifies as the verifier of rustls does with the present authority.
impl ClientCertVerifier for ClientCa {
    /// None: the authority may change, and clients have one certificate for this service.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.current().verifier.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.current().verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.current().verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.current().verifier.supported_verify_schemes()
    }
}
