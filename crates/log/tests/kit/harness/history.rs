//! A disk that remembers what was asked of it, and sees to it that durable bytes stay.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker_disk::{BLOCK, Dir, Disk, Facts, File, Lock, Op, Open, Result};

/// One call that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub op: Op,
    pub path: PathBuf,
    pub ok: bool,
}

/// Remembers the calls of any number of disks. Clones are the same history.
#[derive(Debug, Clone, Default)]
pub struct History(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    events: Vec<Event>,
    files: BTreeMap<PathBuf, Blocks>,
    /// What was written over while it was durable.
    edit: Vec<String>,
}

/// The blocks of a segment that are not zeros: what stands there, and whether it is durable.
type Blocks = BTreeMap<u64, (Vec<u8>, bool)>;

impl History {
    pub fn watch(&self, disk: Arc<dyn Disk>) -> WatchedDisk {
        WatchedDisk { disk, history: self.clone() }
    }

    /// The same history, who knows nothing of the bytes on the disk.
    pub fn anew(&self) -> Self {
        self.memory().files.clear();
        self.clone()
    }

    /// The calls so far.
    pub fn events(&self) -> Vec<Event> {
        self.memory().events.clone()
    }

    /// Durable blocks of segments that were written over.
    pub fn edit(&self) -> Vec<String> {
        self.memory().edit.clone()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell<T>(&self, op: Op, path: &Path, outcome: &Result<T>) {
        let event = Event { op, path: path.into(), ok: outcome.is_ok() };
        self.memory().events.push(event);
    }
}

impl Memory {
    fn wrote(&mut self, path: &Path, bytes: &[u8], offset: u64, durable: bool) {
        if path.extension().is_none_or(|extension| extension != "seg") {
            return;
        }
        let blocks = self.files.entry(path.into()).or_default();
        for (n, bytes) in bytes.chunks(BLOCK).enumerate() {
            let number = offset / BLOCK as u64 + n as u64;
            if let Some((old, true)) = blocks.get(&number)
                && old != bytes
            {
                self.edit.push(format!("block {number} of {}", path.display()));
            }
            if bytes.iter().any(|byte| *byte != 0) {
                blocks.insert(number, (bytes.to_vec(), durable));
            } else {
                blocks.remove(&number);
            }
        }
    }

    fn synced(&mut self, path: &Path) {
        for (_, durable) in self.files.entry(path.into()).or_default().values_mut() {
            *durable = true;
        }
    }

    fn cut(&mut self, path: &Path, len: u64) {
        let blocks = self.files.entry(path.into()).or_default();
        blocks.split_off(&len.div_ceil(BLOCK as u64));
    }
}

/// A disk under the eyes of a [`Witness`].
#[derive(Debug)]
pub struct WatchedDisk {
    disk: Arc<dyn Disk>,
    history: History,
}

#[derive(Debug)]
struct WatchedDir {
    dir: Arc<dyn Dir>,
    history: History,
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn File>,
    history: History,
    dsync: bool,
}

impl Disk for WatchedDisk {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(WatchedDir::of(self.disk.open_dir(path)?, &self.history))
    }

    fn create_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(WatchedDir::of(self.disk.create_dir(path)?, &self.history))
    }
}

impl WatchedDir {
    fn of(dir: Arc<dyn Dir>, history: &History) -> Arc<dyn Dir> {
        Arc::new(Self { dir, history: history.clone() })
    }

    /// Files under another name are other segments, or none.
    fn forget(&self, names: [&str; 2]) {
        let mut memory = self.history.memory();
        for name in names {
            memory.files.remove(&self.path_of(name));
        }
    }
}

impl Dir for WatchedDir {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn open(&self, name: &str, how: Open) -> Result<Arc<dyn File>> {
        let file = self.dir.open(name, how)?;
        Ok(Arc::new(WatchedFile { file, history: self.history.clone(), dsync: how.dsync }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let outcome = self.dir.rename(from, to);
        self.history.tell(Op::Rename, &self.path_of(from), &outcome);
        if outcome.is_ok() {
            self.forget([from, to]);
        }
        outcome
    }

    fn exchange(&self, a: &str, b: &str) -> Result<()> {
        let outcome = self.dir.exchange(a, b);
        self.history.tell(Op::Exchange, &self.path_of(a), &outcome);
        if outcome.is_ok() {
            self.forget([a, b]);
        }
        outcome
    }

    fn unlink(&self, name: &str) -> Result<()> {
        let outcome = self.dir.unlink(name);
        self.history.tell(Op::Unlink, &self.path_of(name), &outcome);
        self.history.memory().files.remove(&self.path_of(name));
        outcome
    }

    fn sync(&self) -> Result<()> {
        let outcome = self.dir.sync();
        self.history.tell(Op::SyncDir, self.path(), &outcome);
        outcome
    }

    fn list(&self) -> Result<Vec<String>> {
        self.dir.list()
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Self::of(self.dir.open_dir(name)?, &self.history))
    }

    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Self::of(self.dir.create_dir(name)?, &self.history))
    }

    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.dir.lock()
    }

    fn facts(&self) -> Result<Facts> {
        self.dir.facts()
    }
}

impl File for WatchedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        let outcome = self.file.write_at(buf, offset);
        self.history.tell(Op::Write, self.path(), &outcome);
        if let Ok(put) = &outcome {
            self.history.memory().wrote(self.path(), &buf[..*put], offset, self.dsync);
        }
        outcome
    }

    fn sync_data(&self) -> Result<()> {
        let outcome = self.file.sync_data();
        self.history.tell(Op::Sync, self.path(), &outcome);
        if outcome.is_ok() {
            self.history.memory().synced(self.path());
        }
        outcome
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let outcome = self.file.set_len(len);
        self.history.tell(Op::Size, self.path(), &outcome);
        self.history.memory().cut(self.path(), len);
        outcome
    }

    fn preallocate(&self, offset: u64, len: u64) -> Result<()> {
        let outcome = self.file.preallocate(offset, len);
        self.history.tell(Op::Size, self.path(), &outcome);
        outcome
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}
