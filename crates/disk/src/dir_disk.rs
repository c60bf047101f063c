//! A disk that is a directory of another one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::dir::Dir;
use crate::disk::Disk;
use crate::error::{Error, Op, Refusal, Result};

/// The directories inside one directory, as a disk of their own: for a program that opens a
/// directory once and keeps many others in it. When that directory is moved, they stay in it.
///
/// A path is one name: see [`Dir`].
#[derive(Debug, Clone)]
pub struct DirDisk(Arc<dyn Dir>);

impl DirDisk {
    /// The directories in `dir`.
    pub fn new(dir: Arc<dyn Dir>) -> Self {
        Self(dir)
    }

    /// The directory that they are in.
    pub fn dir(&self) -> &Arc<dyn Dir> {
        &self.0
    }

    fn name<'a>(&self, op: Op, path: &'a Path) -> Result<&'a str> {
        path.to_str().ok_or_else(|| {
            let source = io::Error::new(io::ErrorKind::InvalidInput, Refusal::Name);
            Error::new(op, &self.0.path().join(path), None, source)
        })
    }
}

impl Disk for DirDisk {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        self.0.open_dir(self.name(Op::OpenDir, path)?)
    }

    fn create_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        self.0.create_dir(self.name(Op::CreateDir, path)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenMode, StdDisk, write_all_at};

    /// Moving the directory takes along what is opened in it later.
    #[test]
    fn a_moved_directory_takes_its_directories_along() {
        let place = tempfile::tempdir().unwrap();
        let (before, after) = (place.path().join("before"), place.path().join("after"));
        let disk = DirDisk::new(StdDisk::new().create_dir(&before).unwrap());
        std::fs::rename(&before, &after).unwrap();
        let dir = disk.create_dir(Path::new("inner")).unwrap();
        write_all_at(&*dir.open("file", OpenMode::create()).unwrap(), b"x", 0).unwrap();
        assert_eq!(std::fs::read(after.join("inner/file")).unwrap(), b"x");
        assert!(disk.open_dir(Path::new("inner")).is_ok());
        for refused in ["", ".", "..", "inner/other", "/etc", "missing"] {
            assert!(disk.open_dir(Path::new(refused)).is_err(), "{refused}");
        }
    }
}
