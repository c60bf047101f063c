//! The certificate in the data folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use esker_disk::Disk;

use crate::certificate::files::{Files, Pem, keep, write};
use crate::certificate::pair::{Pair, is_foreign};
use crate::error::ServerError;

/// What the node makes a certificate with.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) data: PathBuf,
    /// Whom it is for.
    pub(crate) hosts: Vec<String>,
    pub(crate) life: Duration,
}

impl Own {
    pub(crate) fn files(&self) -> Files {
        Files::of_data(&self.data)
    }

    /// The certificate that the folder has or, where it has none that can be used, a new one.
    ///
    /// # Errors
    /// Files that cannot be read or written, and a certificate of the operator that cannot be used.
    pub(crate) fn open(&self, now: SystemTime) -> Result<(Pem, Pair), ServerError> {
        let files = self.files();
        let found = files.read().map_err(|(path, error)| {
            ServerError::Io(format!("cannot read {}", path.display()), error)
        })?;
        let Some(pem) = found else {
            tracing::info!(folder = %self.data.display(), "makes a certificate for HTTP/3");
            return self.make(now);
        };
        let pair = match Pair::parse(&pem) {
            Ok(pair) => pair,
            Err(why) if is_foreign(&pem.cert) => return Err(unusable(&files, &why)),
            // It may be half of a pair of the operator's.
            Err(why) => {
                let dir = self.disk.create_dir(&self.data).map_err(not_written)?;
                keep(&*dir, &self.data, &pem).map_err(|error| {
                    ServerError::Io("cannot keep the certificate that was there".into(), error)
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
            () if files.is_key_open() => "others may read its key",
            () if !pair.names(&self.hosts) => "it is not for the addresses of this node",
            () if pair.is_due(now) => "it ends soon",
            () => return Ok((pem, pair)),
        };
        self.replace(due, now).or_else(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                end = pair.end,
                "keeps the certificate"
            );
            // One of the files may be written.
            Ok((files.read().ok().flatten().unwrap_or(pem), pair))
        })
    }

    fn replace(&self, why: &str, now: SystemTime) -> Result<(Pem, Pair), ServerError> {
        let folder = self.data.display();
        tracing::warn!(why, %folder, "replaces the certificate for HTTP/3");
        self.make(now)
    }

    pub(crate) fn make(&self, now: SystemTime) -> Result<(Pem, Pair), ServerError> {
        let pem = Pair::make(&self.hosts, now, self.life).map_err(ServerError::Certificate)?;
        let pair = Pair::parse(&pem).map_err(ServerError::Certificate)?;
        let dir = self.disk.create_dir(&self.data);
        dir.and_then(|dir| write(&*dir, &pem)).map_err(not_written)?;
        Ok((pem, pair))
    }
}

fn not_written(error: esker_disk::Error) -> ServerError {
    let io = std::io::Error::new(error.kind(), error);
    ServerError::Io("cannot write the certificate".into(), io)
}

/// The operator's certificate in the data folder: only the operator replaces it.
fn unusable(files: &Files, why: &str) -> ServerError {
    let (cert, key) = (files.cert.display(), files.key.display());
    ServerError::Option(format!(
        "{cert} and {key}: {why}; replace them, or remove both, and the node makes its own"
    ))
}
