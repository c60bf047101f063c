//! The two PEM files of a certificate: reading, writing and keeping replaced versions.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use esker_disk::{Dir, replace_file};

use crate::options::CertificateFiles;

const FILE_BYTES_MAX: u64 = 1 << 20;
const CERT_FILE: &str = "cert.pem";
const KEY_FILE: &str = "key.pem";
/// The most replaced versions of a file that are kept.
const REPLACED_VERSIONS_MAX: usize = 64;

/// The contents of both files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Pem {
    pub(crate) cert: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl CertificateFiles {
    /// Returns the files in a data folder.
    pub(crate) fn in_data_dir(data: &Path) -> Self {
        Self { cert: data.join(CERT_FILE), key: data.join(KEY_FILE) }
    }

    /// Reads both files. One that is missing is empty; `None` without either.
    ///
    /// # Errors
    /// The path and the error of a file that exists and cannot be read.
    pub(crate) fn read(&self) -> Result<Option<Pem>, (PathBuf, io::Error)> {
        let read = |path: &Path| read(path).map_err(|error| (path.to_path_buf(), error));
        let (cert, key) = (read(&self.cert)?, read(&self.key)?);
        if cert.is_none() && key.is_none() {
            return Ok(None);
        }
        Ok(Some(Pem { cert: cert.unwrap_or_default(), key: key.unwrap_or_default() }))
    }

    /// Whether others than its owner may read or write the key.
    pub(crate) fn is_key_accessible(&self) -> bool {
        self.key.metadata().is_ok_and(|found| found.mode() & 0o077 != 0)
    }
}

/// Reads a file of at most 1 MiB; `None` if it is not there.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // Checked first: opening a FIFO would wait.
    let found = match path.metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Keeps the files in a data folder before they are replaced, durably: as `.replaced`, or with a
/// number after that where another version is kept.
pub(crate) fn keep_replaced(dir: &dyn Dir, data: &Path, pem: &Pem) -> io::Result<()> {
    for (name, bytes) in [(KEY_FILE, &pem.key), (CERT_FILE, &pem.cert)] {
        if !bytes.is_empty()
            && let Some(name) = replaced_name(data, name, bytes)?
        {
            replace_file(dir, &name, bytes).map_err(|error| io::Error::new(error.kind(), error))?;
        }
    }
    Ok(())
}

/// Returns the name under which these bytes are to be kept. `None`: they are kept already.
fn replaced_name(data: &Path, name: &str, bytes: &[u8]) -> io::Result<Option<String>> {
    for n in 0..REPLACED_VERSIONS_MAX {
        let kept = if n == 0 { format!("{name}.replaced") } else { format!("{name}.replaced.{n}") };
        match read(&data.join(&kept))? {
            None => return Ok(Some(kept)),
            Some(found) if found == *bytes => return Ok(None),
            Some(_) => {}
        }
    }
    let why = format!(
        "{}: {REPLACED_VERSIONS_MAX} versions of {name} are kept: remove some",
        data.display()
    );
    Err(io::Error::other(why))
}

/// Writes both files of a data folder, durably. A crash between the two leaves a pair that does not
/// belong together, which the next start replaces.
pub(crate) fn write(dir: &dyn Dir, pem: &Pem) -> esker_disk::Result<()> {
    debug_assert!(!pem.key.is_empty() && !pem.cert.is_empty(), "a pair has both files");
    replace_file(dir, KEY_FILE, &pem.key)?;
    replace_file(dir, CERT_FILE, &pem.cert)
}
