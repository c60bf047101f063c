//! The certificate in the data folder, and when the node makes a new one.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use esker_disk::Disk;

use crate::certificate::files::{Pem, keep_replaced, write};
use crate::certificate::pair::{CertificatePair, certificate_hosts, is_operators};
use crate::error::{BrokenInvariant, ServerError};
use crate::options::{CertificateFiles, ServerOptions};

/// Makes certificates in a data folder.
#[derive(Debug, Clone)]
pub(crate) struct CertificateMaker {
    disk: Arc<dyn Disk>,
    data: PathBuf,
    hosts: Vec<String>,
    lifetime: Duration,
}

impl CertificateMaker {
    /// Creates a maker of certificates for these hosts and loopback.
    pub(crate) fn new(options: &ServerOptions, hosts: &[&str]) -> Self {
        Self {
            disk: Arc::clone(&options.disk),
            data: options.data.clone(),
            hosts: certificate_hosts(hosts.iter().copied()),
            lifetime: options.certificate_life,
        }
    }

    pub(crate) fn files(&self) -> CertificateFiles {
        CertificateFiles::in_data_dir(&self.data)
    }

    /// Opens the certificate in the folder; makes one if there is none that can be used.
    ///
    /// # Errors
    /// The error of files that cannot be read or written, or of a certificate of the operator that
    /// cannot be used.
    pub(crate) fn open(&self, now: SystemTime) -> Result<(Pem, CertificatePair), ServerError> {
        let files = self.files();
        let found = files.read().map_err(read_failed)?;
        let Some(pem) = found else {
            tracing::info!(folder = %self.data.display(), "makes a certificate for HTTP/3");
            return self.make(now);
        };
        let pair = match CertificatePair::parse(&pem) {
            Ok(pair) => pair,
            Err(why) if is_operators(&pem.cert) => return Err(unusable(&files, &why)),
            // It may be half of a pair of the operator's.
            Err(why) => {
                let dir = self.disk.create_dir(&self.data);
                let dir = dir.map_err(|error| self.write_failed(error))?;
                keep_replaced(&*dir, &self.data, &pem).map_err(|error| {
                    let (cert, key) = (files.cert.display(), files.key.display());
                    let why = format!(
                        "cannot keep {cert} and {key} under other names before they are replaced: \
                         move them away, and start the node again"
                    );
                    ServerError::Io(why, error)
                })?;
                return self.replace(&why, now);
            }
        };
        match pair.check(now) {
            Ok(()) if !pair.is_own => return Ok((pem, pair)),
            Ok(()) => {}
            Err(why) if !pair.is_own => return Err(unusable(&files, &why)),
            Err(why) => return self.replace(&why, now),
        }
        let due = match () {
            () if files.is_key_accessible() => "others may read its key",
            () if !pair.names(&self.hosts) => "it is not for the addresses of this node",
            () if pair.is_due(now) => "it ends soon",
            () => return Ok((pem, pair)),
        };
        self.replace(due, now).or_else(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                end = pair.not_after_text(),
                "keeps the certificate"
            );
            // One of the files may be written.
            Ok((files.read().ok().flatten().unwrap_or(pem), pair))
        })
    }

    /// Replaces a certificate of the node, and logs why.
    fn replace(&self, why: &str, now: SystemTime) -> Result<(Pem, CertificatePair), ServerError> {
        let folder = self.data.display();
        tracing::warn!(why, %folder, "replaces the certificate for HTTP/3");
        self.make(now)
    }

    /// Makes a certificate, and writes it durably.
    pub(crate) fn make(&self, now: SystemTime) -> Result<(Pem, CertificatePair), ServerError> {
        let pem = CertificatePair::make(&self.hosts, now, self.lifetime)
            .map_err(ServerError::Certificate)?;
        let pair = CertificatePair::parse(&pem).map_err(ServerError::Certificate)?;
        if !pair.is_own {
            return Err(ServerError::internal(BrokenInvariant(
                "a node knows the certificates that it makes",
            )));
        }
        let dir = self.disk.create_dir(&self.data);
        dir.and_then(|dir| write(&*dir, &pem)).map_err(|error| self.write_failed(error))?;
        Ok((pem, pair))
    }

    fn write_failed(&self, error: esker_disk::Error) -> ServerError {
        let CertificateFiles { cert, key } = self.files();
        let why = format!(
            "cannot write {} and {}: make room, and let this user write there",
            cert.display(),
            key.display()
        );
        ServerError::Io(why, io::Error::new(error.kind(), error))
    }
}

/// Returns the error of a file that exists and cannot be read.
pub(crate) fn read_failed((path, error): (PathBuf, io::Error)) -> ServerError {
    ServerError::Io(format!("cannot read {}: let this user read it", path.display()), error)
}

/// Returns the error of an operator's certificate in the data folder: only the operator replaces
/// it.
fn unusable(files: &CertificateFiles, why: &str) -> ServerError {
    let (cert, key) = (files.cert.display(), files.key.display());
    ServerError::InvalidOption(format!(
        "{cert} and {key}: {why}; replace them, or remove both, and the node makes its own"
    ))
}
