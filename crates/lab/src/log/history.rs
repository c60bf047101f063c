//! A disk that remembers what was asked of it, and sees to it that durable bytes stay.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker_disk::{BLOCK_BYTES, Disk, Error, Op};
use esker_testkit::{Call, Hook, HookedDisk};

/// A call that changes something.
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
    /// Durable bytes that were written over.
    edit: Vec<String>,
}

/// The blocks of a segment that are not zeros: their bytes, and whether they are durable.
type Blocks = BTreeMap<u64, (Vec<u8>, bool)>;

impl History {
    pub fn watch(&self, disk: Arc<dyn Disk>) -> HookedDisk {
        HookedDisk::new(disk, self.clone())
    }

    /// The same history, which knows nothing of the bytes on the disk.
    pub fn without_files(&self) -> Self {
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
}

impl Memory {
    fn wrote(&mut self, path: &Path, bytes: &[u8], offset: u64, durable: bool) {
        if path.extension().is_none_or(|extension| extension != "seg") {
            return;
        }
        let blocks = self.files.entry(path.into()).or_default();
        for (n, bytes) in bytes.chunks(BLOCK_BYTES).enumerate() {
            let number = offset / BLOCK_BYTES as u64 + n as u64;
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
        blocks.split_off(&len.div_ceil(BLOCK_BYTES as u64));
    }
}

impl Hook for History {
    fn after(&self, call: &Call<'_>, outcome: std::result::Result<usize, &Error>) {
        let mut memory = self.memory();
        match call.op {
            Op::Rename | Op::Exchange => {
                // Files under another name are other segments, or none.
                if outcome.is_ok() {
                    memory.files.remove(call.path);
                    call.other.and_then(|path| memory.files.remove(path));
                }
            }
            Op::Unlink => drop(memory.files.remove(call.path)),
            Op::Write => {
                if let Ok(put) = outcome {
                    let dsync = call.how.is_some_and(|how| how.dsync);
                    memory.wrote(call.path, &call.bytes[..put], call.offset, dsync);
                }
            }
            Op::Sync => {
                if outcome.is_ok() {
                    memory.synced(call.path);
                }
            }
            Op::Size => {
                if let Some(len) = call.new_len {
                    memory.cut(call.path, len);
                }
            }
            Op::SyncDir => {}
            // Nothing that is there changes.
            _ => return,
        }
        let event = Event { op: call.op, path: call.path.into(), ok: outcome.is_ok() };
        memory.events.push(event);
    }
}
