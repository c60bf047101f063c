//! A small log on Esker's simulated disk, and the recording of its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use esker_disk::sim::{SimDisk, SimOptions};
use esker_disk::{Error, Op};
use esker_log::{Engine, Log};
use esker_testkit::{Call, Hook, HookedDisk};

use crate::record::operation::{Ino, NameCall, NameChange, Operation, SyncCall};
use crate::record::recording::Recording;

const RECORD_COUNT: u64 = 40;
/// The smallest segments: the log begins several.
const SEGMENT_BYTES: u32 = 64 << 10;
const BUFFER_BYTES: u32 = 8 << 10;

/// The recording of a log's calls, with a copy of the simulated disk after each of them.
#[derive(Default)]
pub struct Trace {
    pub recording: Recording,
    pub directories: BTreeSet<Ino>,
    /// The disk after this number of events.
    pub disks: Vec<(usize, SimDisk)>,
    /// The inode that has each path.
    inodes: BTreeMap<PathBuf, Ino>,
    /// The inode that each path had when it was opened last: that of the open file.
    opened: BTreeMap<PathBuf, Ino>,
    sizes: BTreeMap<Ino, u64>,
}

/// The hook that records the calls to a disk.
struct Tracer {
    disk: SimDisk,
    trace: Arc<Mutex<Trace>>,
}

impl Trace {
    /// Runs the log on one thread, so that its calls have one order.
    pub fn of_a_log(options: SimOptions) -> Self {
        let disk = SimDisk::with(options);
        let mut trace = Self::default();
        trace.directories.insert(Ino::ROOT);
        trace.inodes.insert("/".into(), Ino::ROOT);
        let trace = Arc::new(Mutex::new(trace));
        let tracer = Tracer { disk: disk.clone(), trace: Arc::clone(&trace) };
        let engine = Engine::manual();
        run_log(HookedDisk::new(Arc::new(disk), tracer), &engine);
        engine.stop();
        let mut trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *trace)
    }

    fn translate(&mut self, call: &Call<'_>, count: usize, disk: &SimDisk) {
        let (path, open) = (call.path, self.opened.get(call.path).copied());
        let inode = self.inodes.get(path).copied();
        match (call.op, call.other) {
            (Op::Open, _) => {
                let opened = inode.unwrap_or_else(|| self.create(path, NameCall::Create));
                self.opened.insert(path.to_owned(), opened);
            }
            (Op::CreateDir, _) if inode.is_none() => {
                let made = self.create(path, NameCall::Mkdir);
                self.directories.insert(made);
                self.sync(path.parent().unwrap(), SyncCall::FsyncDir);
            }
            (Op::Rename, Some(other)) => {
                self.rename(path, NameCall::Rename, &[(path, None), (other, inode)]);
            }
            (Op::Exchange, Some(other)) => {
                let exchanged = [(path, self.inodes.get(other).copied()), (other, inode)];
                self.rename(path, NameCall::Exchange, &exchanged);
            }
            (Op::Unlink, _) => self.rename(path, NameCall::Unlink, &[(path, None)]),
            (Op::SyncDir, _) => self.sync(path, SyncCall::FsyncDir),
            (Op::Sync, _) => {
                let (inode, call) = (open.unwrap(), SyncCall::Fdatasync);
                self.add(path, Operation::Sync { inode, call });
            }
            (Op::Write, _) => {
                let (file, offset) = (open.unwrap(), call.offset);
                let size = self.sizes.entry(file).or_default();
                *size = (*size).max(offset + count as u64);
                let data = call.bytes[..count].into();
                self.add(path, Operation::Write { file, offset, data });
            }
            (Op::Size, _) => self.resize(path, open.unwrap(), disk),
            _ => {}
        }
    }

    /// Records the size that a file got, found by its name.
    fn resize(&mut self, path: &Path, file: Ino, disk: &SimDisk) {
        let named = self.inodes.iter().find(|(_, ino)| **ino == file);
        let size = disk.contents(named.unwrap().0).unwrap().len() as u64;
        if self.sizes.insert(file, size).unwrap_or(0) != size {
            self.add(path, Operation::Resize { file, size });
        }
    }

    fn create(&mut self, path: &Path, call: NameCall) -> Ino {
        let used = self.inodes.values().chain(self.sizes.keys()).map(|ino| ino.0).max();
        let ino = Ino(used.unwrap_or(0) + 1);
        self.sizes.insert(ino, 0);
        self.rename(path, call, &[(path, Some(ino))]);
        ino
    }

    /// Records that paths have other inodes.
    fn rename(&mut self, path: &Path, call: NameCall, changed: &[(&Path, Option<Ino>)]) {
        let mut changes = Vec::new();
        for (path, after) in changed {
            let before = match after {
                Some(ino) => self.inodes.insert(path.to_path_buf(), *ino),
                None => self.inodes.remove(*path),
            };
            let dir = self.inodes[path.parent().unwrap()];
            let name = path.file_name().unwrap().to_owned();
            changes.push(NameChange { dir, name, before, after: *after });
        }
        self.add(path, Operation::Rename { call, changes });
    }

    fn sync(&mut self, dir: &Path, call: SyncCall) {
        let inode = self.inodes[dir];
        self.add(dir, Operation::Sync { inode, call });
    }

    fn add(&mut self, path: &Path, operation: Operation) {
        self.recording.add(path.display().to_string(), operation).unwrap();
    }
}

impl Hook for Tracer {
    fn after(&self, call: &Call<'_>, outcome: Result<usize, &Error>) {
        let Ok(count) = outcome else { return };
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        let before = trace.recording.events.len();
        trace.translate(call, count, &self.disk);
        let cut = trace.recording.events.len();
        if cut > before {
            trace.disks.push((cut, self.disk.fork(0)));
        }
    }
}

/// Appends records of many sizes, through several segments, and drops the old ones.
fn run_log(disk: HookedDisk, engine: &Engine) {
    let log = Log::builder("/log")
        .disk(Arc::new(disk))
        .engine(engine.clone())
        .segment_size(SEGMENT_BYTES)
        .buffer_size(BUFFER_BYTES)
        .buffers(2)
        .reserve(0)
        .retain_segments(2);
    let log = log.open().unwrap();
    for n in 1..=RECORD_COUNT {
        let record: Vec<u8> = (0..n * 1_237 % 7_000).map(|at| (at % 251 + n) as u8).collect();
        log.append(record).unwrap().blocking_wait().unwrap();
        engine.run();
    }
    log.close().unwrap();
}
