//! The two files of a certificate, PEM.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use esker_disk::{Dir, replace_file};

/// The most bytes of a file.
const LEN_MAX: u64 = 1 << 20;
const CERT: &str = "cert.pem";
const KEY: &str = "key.pem";
/// How many versions of a file are kept.
const KEPT_MAX: usize = 64;

/// Where a certificate and its key are.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// What both files have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Pem {
    pub(crate) cert: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Files {
    /// Those of a data folder.
    pub(crate) fn of_data(data: &Path) -> Self {
        Self { cert: data.join(CERT), key: data.join(KEY) }
    }

    /// Reads both. A file that is missing is empty; `None` without either.
    ///
    /// # Errors
    /// A file that is there and cannot be read, and which.
    pub(crate) fn read(&self) -> Result<Option<Pem>, (PathBuf, io::Error)> {
        let read = |path: &Path| read(path).map_err(|error| (path.to_path_buf(), error));
        let (cert, key) = (read(&self.cert)?, read(&self.key)?);
        if cert.is_none() && key.is_none() {
            return Ok(None);
        }
        Ok(Some(Pem { cert: cert.unwrap_or_default(), key: key.unwrap_or_default() }))
    }

    /// Whether others than its owner may read the key, or write it.
    pub(crate) fn is_key_open(&self) -> bool {
        self.key.metadata().is_ok_and(|found| found.mode() & 0o077 != 0)
    }
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    // Looked at first: opening a FIFO would wait.
    let found = match path.metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LEN_MAX).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Keeps what a data folder has beside the pair that takes its place, durably: as `.replaced`, or
/// with a number after that where another version is kept.
pub(crate) fn keep(dir: &dyn Dir, data: &Path, pem: &Pem) -> io::Result<()> {
    for (name, bytes) in [(KEY, &pem.key), (CERT, &pem.cert)] {
        if !bytes.is_empty()
            && let Some(name) = free_name(data, name, bytes)?
        {
            replace_file(dir, &name, bytes).map_err(|error| io::Error::new(error.kind(), error))?;
        }
    }
    Ok(())
}

/// The name that these bytes are kept under. `None`: they are kept already.
fn free_name(data: &Path, name: &str, bytes: &[u8]) -> io::Result<Option<String>> {
    for n in 0..KEPT_MAX {
        let kept = if n == 0 { format!("{name}.replaced") } else { format!("{name}.replaced.{n}") };
        match read(&data.join(&kept))? {
            None => return Ok(Some(kept)),
            Some(found) if found == *bytes => return Ok(None),
            Some(_) => {}
        }
    }
    let why = format!("{}: {KEPT_MAX} versions of {name} are kept: remove some", data.display());
    Err(io::Error::other(why))
}

/// Writes both files of a data folder, durably. A crash between the two leaves a pair that does not
/// belong together, which the next start replaces.
pub(crate) fn write(dir: &dyn Dir, pem: &Pem) -> esker_disk::Result<()> {
    replace_file(dir, KEY, &pem.key)?;
    replace_file(dir, CERT, &pem.cert)
}
