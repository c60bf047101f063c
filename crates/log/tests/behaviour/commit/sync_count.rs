//! A build that never syncs is caught: after every lonely durable append there is a sync, or a
//! write to a file that was opened so that its writes are durable; counted below the log, on the
//! simulated disk and on the real one.
//!
//! Under `OsBuffered` the watermark page is synced after the segment, and under no other policy.
//!
//! The log's own counters are not believed here.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use esker_disk::sim::SimDisk;
use esker_disk::{Op, StdDisk};
use esker_log::{Log, Options, Policy};
use esker_testkit::HookedDisk;

use crate::fixture::{DIR, append, driven};

/// A call on a file or a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Call {
    /// A write, and whether it is durable by itself.
    Write(bool),
    Sync,
    SyncDir,
    Rename,
}

type Calls = Arc<Mutex<Vec<(Call, PathBuf)>>>;

/// A real disk that writes its calls down.
fn counting() -> (HookedDisk, Calls) {
    let calls = Calls::default();
    let list = Arc::clone(&calls);
    let count = move |call: &esker_testkit::Call<'_>| {
        let kind = match call.op {
            Op::Write => Call::Write(call.how.is_some_and(|how| how.dsync)),
            Op::Sync => Call::Sync,
            Op::SyncDir => Call::SyncDir,
            Op::Rename | Op::Exchange => Call::Rename,
            _ => return Ok(()),
        };
        let mut list = list.lock().unwrap();
        if call.op != Op::Rename {
            list.push((kind.clone(), call.path.into()));
        }
        // The names that are new.
        list.extend(call.other.map(|path| (kind, path.into())));
        Ok(())
    };
    (HookedDisk::new(Arc::new(StdDisk::new()), count), calls)
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "seg")
}

/// Writes to segments that nothing has made durable, after each of 200 lonely appends.
fn never_left_undurable(policy: Policy, dsync: bool) {
    let dir = tempfile::tempdir().unwrap();
    let (disk, calls) = counting();
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

/// The calls on the segments and on the watermark page by an append that is waited for.
fn calls_of_an_append(policy: Policy, dsync: bool) -> Vec<(Call, PathBuf)> {
    let dir = tempfile::tempdir().unwrap();
    let (disk, calls) = counting();
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
    let sync = calls.iter().position(|call| *call == (&Call::Sync, false)).unwrap();
    assert_eq!(calls[sync + 1..], page, "{calls:?}");
}

/// Each unit carries the durable lower bound there.
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
#[test]
fn a_segments_name_is_durable_before_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, calls) = counting();
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
