//! The files of a package, and the folder from which they are packed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A file of a package.
#[derive(Clone, Debug)]
pub struct PackedFile {
    /// Its path in the package.
    pub path: String,
    pub mode: u32,
    pub source: Source,
}

/// Where the bytes of a file come from.
#[derive(Clone, Debug)]
pub enum Source {
    File(PathBuf),
    Bytes(Vec<u8>),
}

impl PackedFile {
    pub fn program(path: impl Into<String>, source: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), mode: 0o755, source: Source::File(source.into()) }
    }

    pub fn copy(path: impl Into<String>, source: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), mode: 0o644, source: Source::File(source.into()) }
    }

    pub fn text(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode: 0o644, source: Source::Bytes(bytes.into()) }
    }
}

/// Writes `files` below `folder`, with fixed modes, and removes what was there.
pub fn write(folder: &Path, files: &[PackedFile]) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    create_folder(folder)?;
    for file in files {
        let path = folder.join(&file.path);
        let mut above: Vec<_> = Path::new(&file.path).ancestors().skip(1).collect();
        above.reverse();
        for one in above {
            create_folder(&folder.join(one))?;
        }
        match &file.source {
            Source::Bytes(bytes) => fs::write(&path, bytes)?,
            Source::File(source) => {
                fs::copy(source, &path).with_context(|| source.display().to_string())?;
            }
        }
        fs::set_permissions(&path, Permissions::from_mode(file.mode))?;
    }
    Ok(())
}

/// Creates a folder with the mode 0755, whatever the umask.
fn create_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    Ok(())
}
