//! Records, bytes, commits and syncs: as many as the test appended, and the disk did.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_log::{Append, Engine, Log, Options, Policy, Seq};
use esker_testkit::HookedDisk;

use crate::fixture::{DIR, append, driven, payload};

/// Segments so large that the log never leaves the first.
fn open(disk: &SimDisk, set: impl FnOnce(&mut Options)) -> Log {
    let (mut options, _) = driven(disk);
    options.segment_size = 64 << 20;
    set(&mut options);
    Log::builder(DIR).options(options).open().unwrap()
}

fn bytes_of(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().map(|seq| payload(seq).len() as u64).sum()
}

#[test]
fn records_and_their_bytes_are_counted_when_they_are_accepted() {
    let log = open(&SimDisk::new(1), |_| {});
    append(&log, 30);
    let batch: Vec<_> = (31..=40).map(payload).collect();
    log.write(Append::records(&batch)).unwrap().detach();
    let atomic: Vec<_> = (41..=47).map(payload).collect();
    log.write(Append::records(&atomic).atomic()).unwrap().detach();
    log.write(Append::numbered(Seq(47), &[(Seq(1000), b"1234")])).unwrap().detach();
    log.write(Append::numbered(Seq(47), &[(Seq(1001), b"refused")])).unwrap_err();
    let before = log.metrics().stats;
    assert_eq!((before.appended, before.records, before.pending), (48, 30, 18));
    assert_eq!(before.payload_bytes, bytes_of(1..=47) + 4);
    log.barrier().unwrap().blocking_wait().unwrap();
    let after = log.metrics().stats;
    assert_eq!((after.appended, after.records, after.pending), (48, 48, 0));
    assert_eq!(after.payload_bytes, before.payload_bytes);
    assert_eq!(after, log.stats());
    log.close().unwrap();
}

/// A disk that counts the syncs of the first segment, and not of files that are made ahead.
fn counting(disk: &SimDisk) -> (HookedDisk, Arc<AtomicU64>) {
    let synced = Arc::<AtomicU64>::default();
    let count = Arc::clone(&synced);
    let hook = move |call: &esker_testkit::Call<'_>| {
        if call.op == Op::Sync && call.path.ends_with("00000000000000000001.seg") {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    };
    (HookedDisk::new(Arc::new(disk.clone()), hook), synced)
}

/// One commit for each append that is waited for, each with a sync: a call of its own, or a write
/// to a file that makes writes durable.
#[test]
fn commits_and_syncs_are_those_of_the_disk() {
    for dsync in [true, false] {
        let disk = SimDisk::new(1);
        let (hooked, synced) = counting(&disk);
        let log = open(&disk, |options| {
            (options.dsync, options.disk) = (dsync, Arc::new(hooked));
        });
        append(&log, 1);
        let (start, metrics) = (disk.stats(), log.metrics());
        let synced = || synced.load(Ordering::SeqCst);
        let before = synced();
        // So few that no blocks are prewritten meanwhile, which takes syncs that are no commits.
        append(&log, 10);
        log.write(Append::records(&[b"a", b"b"])).unwrap().blocking_wait().unwrap();
        let (end, after) = (disk.stats(), log.metrics());
        assert_eq!(after.stats.commits - metrics.stats.commits, 11);
        let durations = &after.sync_durations;
        assert_eq!(durations.count(), after.stats.syncs);
        assert_eq!(durations.count() - metrics.sync_durations.count(), 11, "dsync {dsync}");
        if dsync {
            assert_eq!(
                end.dsync_bytes - start.dsync_bytes,
                after.stats.bytes - metrics.stats.bytes
            );
        } else {
            assert_eq!(synced() - before, 11);
        }
        // The log is one run of commit units.
        let positions = after.metadata.position.0 - metrics.metadata.position.0;
        assert_eq!(after.stats.bytes - metrics.stats.bytes, positions);
        log.close().unwrap();
    }
}

/// Also the segments that a commit left behind: each is synced before the commit counts.
#[test]
fn syncs_of_several_segments_are_counted() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    (options.dsync, options.policy) = (false, Policy::OsBuffered);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 1);
    let before = log.metrics();
    for n in 0..12 {
        drop(log.append([n; 5000]).unwrap());
        engine.run();
    }
    assert_eq!(log.metrics().stats.syncs, before.stats.syncs, "written only");
    log.barrier().unwrap().blocking_wait().unwrap();
    let after = log.metrics();
    assert_eq!(after.metadata.segments, 2);
    assert_eq!(after.stats.syncs - before.stats.syncs, 2);
    log.close().unwrap();
}

#[test]
fn a_failed_sync_is_not_counted() {
    let disk = SimDisk::new(1);
    let log = open(&disk, |options| options.dsync = false);
    append(&log, 3);
    disk.inject(Fault::on(Op::Sync, Effect::Io).path(".seg"));
    log.append(b"x").unwrap().blocking_wait().unwrap_err();
    let metrics = log.metrics();
    assert_eq!((metrics.stats.commits, metrics.stats.syncs), (4, 3));
    assert_eq!((metrics.stats.appended, metrics.stats.records), (4, 3));
    assert!(log.close().is_err());
}

/// A disk each of whose calls of one kind, on segments, takes at least this long.
fn slow(op: Op, by: Duration) -> HookedDisk {
    let hook = move |call: &esker_testkit::Call<'_>| {
        if call.op == op && call.path.extension().is_some_and(|extension| extension == "seg") {
            std::thread::sleep(by);
        }
        Ok(())
    };
    HookedDisk::new(Arc::new(SimDisk::new(1)), hook)
}

fn open_on(disk: HookedDisk, dsync: bool) -> Log {
    let mut options = Options::on(Arc::new(disk));
    (options.dsync, options.engine) = (dsync, Some(Engine::manual()));
    Log::builder(DIR).options(options).open().unwrap()
}

#[test]
fn durations_are_those_of_the_syncs() {
    const TOOK: Duration = Duration::from_millis(20);
    for (op, dsync) in [(Op::Sync, false), (Op::Write, true)] {
        let log = open_on(slow(op, TOOK), dsync);
        let start = Instant::now();
        append(&log, 5);
        let most = start.elapsed();
        let syncs = log.metrics().sync_durations;
        assert_eq!(syncs.count(), 5, "{op:?}");
        assert!(syncs.sum() >= 5 * TOOK && syncs.sum() <= most, "{:?}", syncs.sum());
        let (shortest, longest) = (syncs.quantile(0.0).unwrap(), syncs.quantile(1.0).unwrap());
        assert!(TOOK <= shortest && shortest <= longest, "{shortest:?} to {longest:?}");
        // The end of a bucket is at most a quarter of its start later.
        assert!(longest <= most + most / 4 && longest * 4 / 5 <= syncs.sum());
        log.close().unwrap();
    }
}

/// A write that a sync makes durable is no part of that sync.
#[test]
fn a_slow_write_is_no_slow_sync() {
    const TOOK: Duration = Duration::from_millis(500);
    let log = open_on(slow(Op::Write, TOOK), false);
    append(&log, 2);
    let syncs = log.metrics().sync_durations;
    assert!(syncs.count() == 2 && syncs.sum() < TOOK, "{:?}", syncs.sum());
    log.close().unwrap();
}

#[test]
fn counts_begin_with_each_opening_and_remain_after_a_close() {
    let disk = SimDisk::new(1);
    let log = open(&disk, |_| {});
    append(&log, 7);
    log.close().unwrap();
    let closed = log.metrics();
    assert_eq!((closed.stats.appended, closed.stats.commits), (7, 7));
    assert_eq!((closed.metadata.records, closed.metadata.segments), (7, 1));
    drop(log);
    let log = open(&disk, |_| {});
    let metrics = log.metrics();
    assert_eq!((metrics.stats.appended, metrics.stats.payload_bytes), (0, 0));
    assert_eq!((metrics.stats.commits, metrics.sync_durations.count()), (0, 0));
    assert_eq!((metrics.metadata.records, metrics.metadata.durable), (7, Seq(7)));
    log.close().unwrap();
}
