//! A disk that discards segment writes and skips syncs once a switch is set. What remains to
//! measure is the log's own work per record.
//!
//! Directory entries and small files still go to the real disk. Records cannot be
//! read back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_disk::{Dir, Disk, Facts, File, Lock, OpenMode, Result};

/// Wraps a disk; discards segment writes after the switch is set.
#[derive(Debug)]
pub struct NoDisk {
    disk: Arc<dyn Disk>,
    off: Arc<AtomicBool>,
}

/// The switch.
#[derive(Debug, Clone)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    /// Discards all later segment writes.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl NoDisk {
    /// Wraps a disk. Writes pass through until the switch is set.
    pub fn around(disk: Arc<dyn Disk>) -> (Arc<dyn Disk>, Switch) {
        let off = Arc::new(AtomicBool::new(false));
        (Arc::new(Self { disk, off: Arc::clone(&off) }), Switch(off))
    }
}

impl Disk for NoDisk {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(NoDir::around(self.disk.open_dir(path)?, &self.off))
    }

    fn create_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(NoDir::around(self.disk.create_dir(path)?, &self.off))
    }
}

/// A directory whose segment writes are discarded after the switch is set.
#[derive(Debug)]
struct NoDir {
    dir: Arc<dyn Dir>,
    off: Arc<AtomicBool>,
}

impl NoDir {
    fn around(dir: Arc<dyn Dir>, off: &Arc<AtomicBool>) -> Arc<dyn Dir> {
        Arc::new(Self { dir, off: Arc::clone(off) })
    }
}

impl Dir for NoDir {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn open(&self, name: &str, how: OpenMode) -> Result<Arc<dyn File>> {
        let file = self.dir.open(name, how)?;
        if Path::new(name).extension().is_some_and(|extension| extension == "seg") {
            return Ok(Arc::new(DiscardingFile { file, off: Arc::clone(&self.off) }));
        }
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename(from, to)
    }

    fn exchange(&self, a: &str, b: &str) -> Result<()> {
        self.dir.exchange(a, b)
    }

    fn unlink(&self, name: &str) -> Result<()> {
        self.dir.unlink(name)
    }

    fn remove_dir(&self, name: &str) -> Result<()> {
        self.dir.remove_dir(name)
    }

    fn sync(&self) -> Result<()> {
        if self.off.load(Ordering::SeqCst) { Ok(()) } else { self.dir.sync() }
    }

    fn list(&self) -> Result<Vec<String>> {
        self.dir.list()
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Self::around(self.dir.open_dir(name)?, &self.off))
    }

    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Self::around(self.dir.create_dir(name)?, &self.off))
    }

    fn readable_as(&self, name: &str) -> Result<()> {
        self.dir.readable_as(name)
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.dir.lock()
    }

    fn facts(&self) -> Result<Facts> {
        let facts = self.dir.facts()?;
        Ok(Facts::new("none", facts.direct, facts.dsync))
    }
}

/// A segment whose writes are discarded after the switch is set.
#[derive(Debug)]
struct DiscardingFile {
    file: Arc<dyn File>,
    off: Arc<AtomicBool>,
}

impl DiscardingFile {
    fn is_off(&self) -> bool {
        self.off.load(Ordering::SeqCst)
    }
}

impl File for DiscardingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        if self.is_off() { Ok(buf.len()) } else { self.file.write_at(buf, offset) }
    }

    fn sync_data(&self) -> Result<()> {
        if self.is_off() { Ok(()) } else { self.file.sync_data() }
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        if self.is_off() { Ok(()) } else { self.file.set_len(len) }
    }

    fn preallocate(&self, offset: u64, len: u64) -> Result<()> {
        if self.is_off() { Ok(()) } else { self.file.preallocate(offset, len) }
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}
