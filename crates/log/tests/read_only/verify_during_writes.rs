//! `verify` of a valid log that another process writes finds no corruption, whatever happens
//! meanwhile.
//!
//! Guards: a segment that left a small ring while it was read, a unit that was on its way, and a
//! session that ended and began, reported as corruption; and real corruption passed over because of
//! a writer.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use esker_disk::sim::SimDisk;
use esker_disk::{Dir, Disk, Facts, File, Lock, Open, Result};
use esker_log::{Engine, Log, Options, verify};

use crate::fixture::{DIR, append, driven, payload};

type Act = Box<dyn FnMut() + Send>;

/// Counts the calls that look at something, and does something before each of a few of them.
struct Meddler {
    calls: AtomicU64,
    from: u64,
    act: Mutex<Option<Act>>,
}

impl std::fmt::Debug for Meddler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meddler").finish_non_exhaustive()
    }
}

impl Meddler {
    fn call(&self) {
        let n = self.calls.fetch_add(1, SeqCst);
        // From then on before every seventh call: the writer does not stop.
        if n >= self.from
            && (n - self.from).is_multiple_of(7)
            && let Some(act) = &mut *self.act.lock().unwrap()
        {
            act();
        }
    }
}

#[derive(Debug)]
struct Meddled {
    disk: SimDisk,
    meddler: Arc<Meddler>,
}

#[derive(Debug)]
struct MeddledDir {
    dir: Arc<dyn Dir>,
    meddler: Arc<Meddler>,
}

#[derive(Debug)]
struct MeddledFile {
    file: Arc<dyn File>,
    meddler: Arc<Meddler>,
}

impl Disk for Meddled {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        let (dir, meddler) = (self.disk.open_dir(path)?, Arc::clone(&self.meddler));
        Ok(Arc::new(MeddledDir { dir, meddler }))
    }
    fn create_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        self.disk.create_dir(path)
    }
}

impl Dir for MeddledDir {
    fn path(&self) -> &Path {
        self.dir.path()
    }
    fn open(&self, name: &str, how: Open) -> Result<Arc<dyn File>> {
        self.meddler.call();
        let (file, meddler) = (self.dir.open(name, how)?, Arc::clone(&self.meddler));
        Ok(Arc::new(MeddledFile { file, meddler }))
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
    fn sync(&self) -> Result<()> {
        self.dir.sync()
    }
    fn list(&self) -> Result<Vec<String>> {
        self.meddler.call();
        self.dir.list()
    }
    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.dir.open_dir(name)
    }
    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.dir.create_dir(name)
    }
    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.dir.lock()
    }
    fn facts(&self) -> Result<Facts> {
        self.dir.facts()
    }
}

impl File for MeddledFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.meddler.call();
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.file.write_at(buf, offset)
    }
    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }
    fn preallocate(&self, offset: u64, len: u64) -> Result<()> {
        self.file.preallocate(offset, len)
    }
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

/// Verifies with a writer that acts from each call on. `make` gives the log and what its writer
/// does.
fn at_every_call(make: impl Fn(&SimDisk, &Engine) -> Act) -> u64 {
    for from in 0.. {
        let disk = SimDisk::new(1);
        let (_, engine) = driven(&disk);
        let act = make(&disk, &engine);
        let meddler =
            Arc::new(Meddler { calls: AtomicU64::new(0), from, act: Mutex::new(Some(act)) });
        let meddled = Meddled { disk: disk.clone(), meddler: Arc::clone(&meddler) };
        let mut options = Options::on(Arc::new(meddled));
        options.engine = Some(Engine::manual());
        let report = verify(DIR, &options).unwrap();
        assert!(report.corruption.is_empty(), "from call {from} on: {:?}", report.corruption);
        // All that was listed may have left a ring.
        assert!(report.records > 0 || report.segments == 0, "from call {from} on: {report:?}");
        let calls = meddler.calls.load(SeqCst);
        *meddler.act.lock().unwrap() = None;
        if calls <= from {
            return from;
        }
    }
    unreachable!()
}

/// Requirements: W-25.
#[test]
fn verify_of_a_small_ring_during_writes() {
    let calls = at_every_call(|disk, engine| {
        let (mut options, _) = driven(disk);
        options.engine = Some(engine.clone());
        options.retention.segments = Some(2);
        let log = Log::builder(DIR).options(options).open().unwrap();
        append(&log, 60);
        let engine = engine.clone();
        Box::new(move || {
            append(&log, 60);
            engine.run();
        })
    });
    assert!(calls > 10, "{calls}");
}

#[test]
fn verify_during_single_commits() {
    at_every_call(|disk, engine| {
        let (mut options, _) = driven(disk);
        options.engine = Some(engine.clone());
        let log = Log::builder(DIR).options(options).open().unwrap();
        append(&log, 5);
        Box::new(move || append(&log, 1))
    });
}

#[test]
fn verify_during_os_buffered_writes() {
    at_every_call(|disk, engine| {
        let (mut options, _) = driven(disk);
        options.engine = Some(engine.clone());
        options.policy = esker_log::Policy::OsBuffered;
        let log = Log::builder(DIR).options(options).open().unwrap();
        append(&log, 5);
        let engine = engine.clone();
        let mut n = 0;
        Box::new(move || {
            n += 1;
            drop(log.append(payload(log.accepted().0 + 1)).unwrap());
            engine.run();
            if n % 3 == 0 {
                log.barrier().unwrap().blocking_wait().unwrap();
            }
        })
    });
}

/// What was durable before is judged, whoever writes.
#[test]
fn corruption_is_reported_during_writes() {
    let disk = SimDisk::new(1);
    let (options, _) = driven(&disk);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 30);
    disk.flip_bit(&Path::new(DIR).join("00000000000000000001.seg"), (4096 * 3 + 90) * 8).unwrap();
    let act: Act = Box::new(move || append(&log, 1));
    let meddler =
        Arc::new(Meddler { calls: AtomicU64::new(0), from: 0, act: Mutex::new(Some(act)) });
    let meddled = Meddled { disk: disk.clone(), meddler };
    let report = verify(DIR, Options::on(Arc::new(meddled))).unwrap();
    assert!(!report.corruption.is_empty());
}
