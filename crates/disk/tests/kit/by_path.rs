//! One call on one path: the directory is opened for it. For tests of the directory's content.
#![allow(dead_code)] // No test needs all of them.

use std::path::Path;
use std::sync::Arc;

use esker_disk::{Dir, Disk, Facts, File, Lock, OpenMode, Result};

pub trait ByPath: Disk {
    fn above(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        self.open_dir(path.parent().unwrap_or(path))
    }

    fn open(&self, path: &Path, how: OpenMode) -> Result<Arc<dyn File>> {
        self.above(path)?.open(name(path), how)
    }

    /// Within one directory.
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        assert_eq!(from.parent(), to.parent());
        self.above(from)?.rename(name(from), name(to))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.above(path)?.unlink(name(path))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.open_dir(dir)?.sync()
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.open_dir(dir)?.list()
    }

    fn lock(&self, dir: &Path) -> Result<Box<dyn Lock>> {
        self.open_dir(dir)?.lock()
    }

    fn facts(&self, dir: &Path) -> Result<Facts> {
        self.open_dir(dir)?.facts()
    }
}

impl<D: Disk + ?Sized> ByPath for D {}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
