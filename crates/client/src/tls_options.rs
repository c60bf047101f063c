//! The options of TLS, and rustls's configuration from them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};

use crate::error::Error;

/// The longest file of certificates, or of a key.
const PEM_BYTES_MAX: u64 = 4 << 20;

/// The options of TLS: the authorities that a client trusts, and the certificate that it shows.
///
/// The files are PEM, of at most 4 MiB. They are read again with each new connection, so that a
/// renewed certificate is used without a restart. While one cannot be used, connections are made
/// with what was read before.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    ca: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
}

impl TlsOptions {
    /// Creates options with which a client trusts the system's authorities, and shows no
    /// certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities of this file, in place of the system's.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(path.into());
        self
    }

    /// Shows this certificate, which may be followed by those of its authorities, to nodes that
    /// want one. `key` is the file of its private key.
    pub fn client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.certificate = Some((certificate.into(), key.into()));
        self
    }

    fn read(&self) -> Result<TlsFiles, Error> {
        let ca = self.ca.as_deref().map(read_file).transpose()?;
        let certificate = self.certificate.as_ref();
        let certificate = certificate.map(|(path, key)| Ok((read_file(path)?, read_file(key)?)));
        Ok(TlsFiles { ca, certificate: certificate.transpose()? })
    }

    /// Returns the configuration that the content of the files makes.
    fn config(
        &self,
        files: &TlsFiles,
        system_roots: Option<&Arc<RootCertStore>>,
        protocol: &[u8],
    ) -> Result<ClientConfig, Error> {
        let roots = match (&self.ca, &files.ca, system_roots) {
            (Some(path), Some(pem), _) => Arc::new(roots(path, pem)?),
            (_, _, Some(roots)) => Arc::clone(roots),
            _ => return Err(Error::internal("there are a CA file or the system's authorities")),
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(|_| Error::internal("the provider has ciphers of TLS 1.3"))?
            .with_root_certificates(roots);
        let mut config = match (&self.certificate, &files.certificate) {
            (Some((path, key_path)), Some((pem, key_pem))) => {
                let chain = certificates(path, pem)?;
                let key = PrivateKeyDer::from_pem_slice(key_pem)
                    .map_err(|error| unusable(key_path, error))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| unusable(path, error))?
            }
            _ => builder.with_no_client_auth(),
        };
        // A resumed connection would not check certificates again.
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }
}

/// The content of the files of [`TlsOptions`].
#[derive(PartialEq)]
struct TlsFiles {
    ca: Option<Vec<u8>>,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
}

/// The configuration of connections, made again when the files of its options change.
pub(crate) struct TlsConfig {
    options: TlsOptions,
    /// Unless there is a CA file.
    system_roots: Option<Arc<RootCertStore>>,
    protocol: &'static [u8],
    current: Mutex<(TlsFiles, Arc<ClientConfig>)>,
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig").field("options", &self.options).finish_non_exhaustive()
    }
}

impl TlsConfig {
    /// Reads the files for connections of this protocol of ALPN.
    pub(crate) fn open(options: TlsOptions, protocol: &'static [u8]) -> Result<Self, Error> {
        let system_roots = options.ca.is_none().then(system_roots).transpose()?.map(Arc::new);
        let files = options.read()?;
        let config = Arc::new(options.config(&files, system_roots.as_ref(), protocol)?);
        Ok(Self { options, system_roots, protocol, current: Mutex::new((files, config)) })
    }

    /// Returns the configuration that the files make now; if one cannot be used, that of before.
    /// Blocks while it reads them.
    pub(crate) fn refresh(&self) -> Arc<ClientConfig> {
        let read = self.options.read();
        let mut current = self.current.lock();
        if let Ok(files) = read
            && files != current.0
            && let Ok(config) =
                self.options.config(&files, self.system_roots.as_ref(), self.protocol)
        {
            *current = (files, Arc::new(config));
        }
        Arc::clone(&current.1)
    }
}

fn system_roots() -> Result<RootCertStore, Error> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let why = loaded.errors.first().map_or("there are none".into(), ToString::to_string);
        return Err(Error::NoSystemAuthorities(why));
    }
    Ok(roots)
}

fn roots(path: &Path, pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, pem)? {
        roots.add(certificate).map_err(|error| unusable(path, error))?;
    }
    Ok(roots)
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match parsed {
        Ok(parsed) if parsed.is_empty() => Err(unusable(path, "it has no certificate")),
        Ok(parsed) => Ok(parsed),
        Err(error) => Err(unusable(path, error)),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    let read = || -> io::Result<()> {
        File::open(path)?.take(PEM_BYTES_MAX + 1).read_to_end(&mut content).map(drop)
    };
    let mut read = read;
    read().map_err(|error| unusable(path, error))?;
    match content.len() as u64 > PEM_BYTES_MAX {
        true => Err(unusable(path, "it has more than 4 MiB")),
        false => Ok(content),
    }
}

fn unusable(path: &Path, why: impl fmt::Display) -> Error {
    Error::UnusableFile { path: path.to_owned(), why: why.to_string() }
}
