//! A build that never syncs is caught: after every lonely durable append stands a sync, or a write
//! to a file that was opened so that its writes are durable; counted below the log, on the
//! simulated disk and on the real one.
//!
//! Under `OsBuffered` the watermark page is synced after the segment, and under no other policy.
//!
//! Guards W-3a, W-27, L-2, L-12; the log's own counters are not believed here.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use esker_disk::sim::SimDisk;
use esker_disk::{Dir, Disk, Facts, File, Lock, Open, Result, StdDisk};
use esker_log::{Log, Options, Policy};

use crate::fixture::{DIR, append, driven};

/// What was asked of a file or a directory, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Call {
    /// A write, and whether it is durable by itself.
    Write(bool),
    Sync,
    SyncDir,
    Rename,
}

type Calls = Arc<Mutex<Vec<(Call, PathBuf)>>>;

/// A disk that counts: the implementation of the three traits that a user might write.
#[derive(Debug)]
struct Counting {
    disk: StdDisk,
    calls: Calls,
}

#[derive(Debug)]
struct CountingDir {
    dir: Arc<dyn Dir>,
    calls: Calls,
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn File>,
    dsync: bool,
    calls: Calls,
}

impl Disk for Counting {
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(CountingDir::of(self.disk.open_dir(path)?, &self.calls))
    }
    fn create_dir(&self, path: &Path) -> Result<Arc<dyn Dir>> {
        Ok(CountingDir::of(self.disk.create_dir(path)?, &self.calls))
    }
}

impl CountingDir {
    fn of(dir: Arc<dyn Dir>, calls: &Calls) -> Arc<dyn Dir> {
        Arc::new(Self { dir, calls: Arc::clone(calls) })
    }
    fn count(&self, call: Call, path: &Path) {
        self.calls.lock().unwrap().push((call, path.into()));
    }
}

impl Dir for CountingDir {
    fn path(&self) -> &Path {
        self.dir.path()
    }
    fn open(&self, name: &str, how: Open) -> Result<Arc<dyn File>> {
        let file = self.dir.open(name, how)?;
        let calls = Arc::clone(&self.calls);
        Ok(Arc::new(CountingFile { file, dsync: how.dsync, calls }))
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.count(Call::Rename, &self.path_of(to));
        self.dir.rename(from, to)
    }
    fn exchange(&self, a: &str, b: &str) -> Result<()> {
        self.count(Call::Rename, &self.path_of(a));
        self.count(Call::Rename, &self.path_of(b));
        self.dir.exchange(a, b)
    }
    fn unlink(&self, name: &str) -> Result<()> {
        self.dir.unlink(name)
    }
    fn sync(&self) -> Result<()> {
        self.count(Call::SyncDir, self.path());
        self.dir.sync()
    }
    fn list(&self) -> Result<Vec<String>> {
        self.dir.list()
    }
    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Self::of(self.dir.open_dir(name)?, &self.calls))
    }
    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(Self::of(self.dir.create_dir(name)?, &self.calls))
    }
    fn lock(&self) -> Result<Box<dyn Lock>> {
        self.dir.lock()
    }
    fn facts(&self) -> Result<Facts> {
        self.dir.facts()
    }
}

impl File for CountingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        let call = (Call::Write(self.dsync), self.file.path().into());
        self.calls.lock().unwrap().push(call);
        self.file.write_at(buf, offset)
    }
    fn sync_data(&self) -> Result<()> {
        self.calls.lock().unwrap().push((Call::Sync, self.file.path().into()));
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

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "seg")
}

/// Writes to segments that nothing has made durable, after each of 200 lonely appends.
fn never_left_undurable(policy: Policy, dsync: bool) {
    let dir = tempfile::tempdir().unwrap();
    let calls = Calls::default();
    let disk = Counting { disk: StdDisk::new(), calls: Arc::clone(&calls) };
    let mut options = Options::on(Arc::new(disk));
    options.policy = policy;
    options.dsync = dsync;
    options.engine = Some(esker_log::Engine::manual());
    options.segment_size = 256 << 10;
    let log = Log::builder(dir.path().join("log")).options(options).open().unwrap();
    let mut durable_steps = 0;
    for n in 0..200 {
        calls.lock().unwrap().clear();
        append(&log, 1);
        let calls = calls.lock().unwrap();
        let segments = calls.iter().filter(|(_, path)| is_segment(path));
        let mut open: Vec<&Path> = Vec::new();
        let mut wrote = false;
        for (call, path) in segments {
            match call {
                Call::Write(true) => {
                    wrote = true;
                    durable_steps += 1;
                }
                Call::Write(false) => {
                    wrote = true;
                    open.push(path);
                }
                Call::Sync => {
                    durable_steps += usize::from(!open.is_empty());
                    open.retain(|other| other != path);
                }
                Call::SyncDir | Call::Rename => {}
            }
        }
        assert!(wrote, "append {n} wrote nothing");
        // What is made ahead, after the commit, may be on its way; never the commit.
        assert!(
            open.is_empty(),
            "append {n} left {open:?} unsynced under {policy:?}, dsync {dsync}"
        );
    }
    assert!(durable_steps >= 200, "{durable_steps} syncs for 200 appends");
    log.close().unwrap();
}

/// Requirements: W-3a.
#[test]
fn each_of_200_single_appends_is_synced() {
    for policy in [Policy::Always, Policy::Batch(1000.try_into().unwrap())] {
        never_left_undurable(policy, true);
        never_left_undurable(policy, false);
    }
}

/// `OsBuffered` syncs nothing unasked; a wait asks.
#[test]
fn os_buffered_syncs_when_asked() {
    never_left_undurable(Policy::OsBuffered, true);
}

/// Requirements: L-1.
#[test]
fn the_simulated_disk_counts_the_same() {
    for dsync in [true, false] {
        let disk = SimDisk::new(1);
        let (mut options, _) = driven(&disk);
        options.dsync = dsync;
        options.segment_size = 64 << 20;
        let log = Log::builder(DIR).options(options).open().unwrap();
        let before = disk.stats();
        append(&log, 200);
        let after = disk.stats();
        let (syncs, writes) =
            (after.syncs - before.syncs, after.dsync_writes - before.dsync_writes);
        if dsync {
            assert!(writes >= 200, "{writes} durable writes");
            assert!(syncs < 20, "{syncs} syncs beside the durable writes");
        } else {
            assert!(syncs >= 200, "{syncs} syncs");
            assert_eq!(writes, 0);
        }
        log.close().unwrap();
    }
}

fn is_page(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "mark")
}

/// What was asked of the segments and of the watermark page by an append that is waited for.
fn calls_of_an_append(policy: Policy, dsync: bool) -> Vec<(Call, PathBuf)> {
    let dir = tempfile::tempdir().unwrap();
    let calls = Calls::default();
    let disk = Counting { disk: StdDisk::new(), calls: Arc::clone(&calls) };
    let mut options = Options::on(Arc::new(disk));
    options.policy = policy;
    options.dsync = dsync;
    options.direct = esker_log::Direct::Off;
    options.engine = Some(esker_log::Engine::manual());
    let log = Log::builder(dir.path().join("log")).options(options).open().unwrap();
    append(&log, 20);
    calls.lock().unwrap().clear();
    append(&log, 1);
    let all = calls.lock().unwrap().clone();
    log.close().unwrap();
    all.into_iter().filter(|(_, path)| is_segment(path) || is_page(path)).collect()
}

/// Before the ticket resolves: no commit unit says that the sync made it durable.
#[test]
fn os_buffered_syncs_the_watermark_page_after_the_segment() {
    let calls = calls_of_an_append(Policy::OsBuffered, true);
    let calls: Vec<_> = calls.iter().map(|(call, path)| (call, is_page(path))).collect();
    let page = [(&Call::Write(false), true), (&Call::Sync, true)];
    let behind = calls.iter().position(|call| *call == (&Call::Sync, false)).unwrap();
    assert_eq!(calls[behind + 1..], page, "{calls:?}");
}

/// Each unit carries the durable lower bound there.
/// Requirements: L-13.
#[test]
fn no_other_policy_syncs_the_watermark_page() {
    let (many, never) = (1000.try_into().unwrap(), std::time::Duration::from_secs(3600));
    for policy in [Policy::Always, Policy::Batch(many), Policy::Periodic(never)] {
        for dsync in [true, false] {
            let calls = calls_of_an_append(policy, dsync);
            let page: Vec<_> = calls.iter().filter(|(_, path)| is_page(path)).collect();
            assert!(
                page.iter().all(|(call, _)| *call == Call::Write(false)),
                "{policy:?} {page:?}"
            );
            let syncs = calls.iter().filter(|(call, _)| *call == Call::Sync).count();
            assert_eq!(syncs, usize::from(!dsync), "{policy:?}, dsync {dsync}: {calls:?}");
        }
    }
}

/// A new name in the directory is durable before a commit is written to it.
/// Requirements: W-27, LT-8.
#[test]
fn a_segments_name_is_durable_before_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let calls = Calls::default();
    let disk = Counting { disk: StdDisk::new(), calls: Arc::clone(&calls) };
    let mut options = Options::on(Arc::new(disk));
    options.engine = Some(esker_log::Engine::manual());
    options.segment_size = 64 << 10;
    options.retention.segments = Some(3);
    let log = Log::builder(dir.path().join("log")).options(options).open().unwrap();
    append(&log, 200);
    log.close().unwrap();
    let calls = calls.lock().unwrap();
    let mut named = std::collections::BTreeSet::new();
    let mut fresh: Vec<&Path> = Vec::new();
    let mut seen = 0;
    for (call, path) in calls.iter() {
        match call {
            Call::SyncDir => named.extend(fresh.drain(..)),
            Call::Rename => fresh.push(path),
            Call::Write(_) if is_segment(path) => {
                if !named.contains(&**path) {
                    panic!("{} is written to under a name that may vanish", path.display());
                }
                seen += 1;
            }
            // A segment is made, synced and then named; that sync is its first call.
            Call::Sync if is_segment(path) && !named.contains(&**path) => fresh.push(path),
            Call::Sync | Call::Write(_) => {}
        }
    }
    assert!(seen >= 200);
}
