//! Full buffers that no caller waits for are written without O_DSYNC, and share a sync.
//!
//! Guards: a group that counts as durable before its sync, or as soon as one write of it is; a sync
//! that begins before all writes of its group are complete, or misses the file that they went to; a
//! group without an end, or one that keeps a waiting caller; records of a group that are lost or
//! changed by two crashes in a row.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{CutPoint, Effect, Fault, Persist, SimDisk};
use esker_log::{Engine, Log, OpenError, Options, Policy, Seq, Ticket};
use esker_testkit::{Call, HookedDisk};

use crate::fixture::{DIR, all, driven, in_time, is_eio, poll_once, until};

/// Two records fill one.
const BUFFER: u32 = 16 << 10;
const LEN: usize = 6000;
const PER_BUFFER: u64 = 2;
const BUFFERS: u32 = 8;
/// A group has half of the staging memory.
const GROUP: u64 = PER_BUFFER * BUFFERS as u64 / 2;

fn payload(seq: u64) -> Vec<u8> {
    (0..LEN as u64).map(|at| (seq * 31 + at * 7) as u8).collect()
}

fn payloads(last: u64) -> Vec<(u64, Vec<u8>)> {
    (1..=last).map(|seq| (seq, payload(seq))).collect()
}

fn options(disk: &SimDisk) -> (Options, Engine) {
    let (mut options, engine) = driven(disk);
    options.buffer_size = BUFFER;
    options.buffers = BUFFERS;
    options.segment_size = 1 << 20;
    (options, engine)
}

/// Appends so many records. Nothing waits for them.
fn stage(log: &Log, count: u64) -> Vec<Ticket> {
    (0..count).map(|_| log.append(payload(log.accepted().0 + 1)).unwrap()).collect()
}

/// A call on the file of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileCall {
    Write { dsync: bool },
    Sync,
}

const PLAIN: FileCall = FileCall::Write { dsync: false };
const DURABLE: FileCall = FileCall::Write { dsync: true };

type Calls = Arc<Mutex<Vec<(PathBuf, FileCall)>>>;

/// The same disk, and what is asked of its segments from now on. Zeros are written ahead of the
/// log, and their sync is not one of a commit. `before` runs before each of the others.
fn watched(
    disk: &SimDisk,
    before: impl Fn(FileCall) + Send + Sync + 'static,
) -> (HookedDisk, Calls) {
    let calls = Calls::default();
    let list = Arc::clone(&calls);
    let zeros = Mutex::new(false);
    let note = move |call: &Call<'_>| {
        if call.path.extension().is_some_and(|extension| extension == "seg") {
            let asked = match call.op {
                Op::Write if call.bytes.iter().all(|byte| *byte == 0) => {
                    *zeros.lock().unwrap() = true;
                    None
                }
                Op::Write => Some(FileCall::Write { dsync: call.how.unwrap().dsync }),
                Op::Sync if std::mem::take(&mut *zeros.lock().unwrap()) => None,
                Op::Sync => Some(FileCall::Sync),
                _ => None,
            };
            if let Some(asked) = asked {
                list.lock().unwrap().push((call.path.to_owned(), asked));
                before(asked);
            }
        }
        Ok(())
    };
    (HookedDisk::new(Arc::new(disk.process()), note), calls)
}

/// Returns the calls since it was last called.
fn take(calls: &Calls) -> Vec<FileCall> {
    calls.lock().unwrap().drain(..).map(|(_, asked)| asked).collect()
}

fn open_watched(disk: &SimDisk, set: impl FnOnce(&mut Options)) -> (Log, Engine, Calls) {
    let (mut options, engine) = options(disk);
    let (hooked, calls) = watched(disk, |_| {});
    options.disk = Arc::new(hooked);
    set(&mut options);
    let log = Log::builder(DIR).options(options).open().unwrap();
    engine.run();
    take(&calls);
    (log, engine, calls)
}

#[test]
fn full_buffers_share_a_sync() {
    let disk = SimDisk::new(1);
    let (log, engine, calls) = open_watched(&disk, |_| {});
    let tickets = stage(&log, GROUP + 1);
    engine.run();
    assert_eq!(take(&calls), [PLAIN, PLAIN, PLAIN, PLAIN, FileCall::Sync]);
    assert_eq!((log.durable(), log.stats().pending), (Seq(GROUP), 1));
    drop(tickets);
    engine.run();
    assert_eq!(take(&calls), [DURABLE]);
    // A single full buffer, and the rest that no buffer follows, share nothing.
    drop(stage(&log, PER_BUFFER));
    engine.run();
    assert_eq!(take(&calls), [DURABLE, DURABLE]);
    let last = GROUP + 1 + PER_BUFFER;
    assert_eq!(all(&log), payloads(last));
    log.close().unwrap();
    let (log, ..) = open_watched(&disk, |_| {});
    assert_eq!(all(&log), payloads(last));
    log.close().unwrap();
}

#[test]
fn a_group_has_half_of_the_staging_memory_at_most() {
    let disk = SimDisk::new(1);
    let (log, engine, calls) = open_watched(&disk, |_| {});
    let tickets = stage(&log, 7 * PER_BUFFER + 1);
    engine.run();
    // The fifth and sixth are a second group. It is written beside the sync of the first.
    let asked = take(&calls);
    assert_eq!(asked[..4], [PLAIN; 4]);
    assert_eq!(asked.iter().filter(|asked| **asked == FileCall::Sync).count(), 2, "{asked:?}");
    assert_eq!(log.durable(), Seq(7 * PER_BUFFER));
    drop(tickets);
    log.close().unwrap();
}

/// Without O_DSYNC there is nothing to share, and the other policies promise more of each write.
#[test]
fn other_ways_have_no_groups() {
    let never = Duration::from_secs(3600);
    for policy in [Policy::Batch(NonZeroU64::new(1000).unwrap()), Policy::Periodic(never)] {
        let disk = SimDisk::new(1);
        let (log, engine, calls) = open_watched(&disk, |options| options.policy = policy);
        let tickets = stage(&log, GROUP + 1);
        drop(log.barrier().unwrap());
        engine.advance(never);
        assert!(take(&calls).iter().all(|asked| *asked == DURABLE), "{policy:?}");
        drop(tickets);
        log.close().unwrap();
    }
    let disk = SimDisk::new(1);
    let (log, engine, calls) = open_watched(&disk, |options| options.buffers = 3);
    drop(stage(&log, 2 * PER_BUFFER + 1));
    engine.run();
    assert!(take(&calls).iter().all(|asked| *asked == DURABLE));
    log.close().unwrap();
}

#[test]
fn what_a_caller_waits_for_joins_no_group() {
    let disk = SimDisk::new(1);
    let (log, engine, calls) = open_watched(&disk, |_| {});
    let mut tickets = stage(&log, 6 * PER_BUFFER + 1);
    assert!(poll_once(&mut tickets[PER_BUFFER as usize]).is_pending());
    engine.run();
    // The caller waits for the second buffer. The group begins after it.
    assert_eq!(take(&calls)[..4], [DURABLE, DURABLE, PLAIN, PLAIN]);
    drop(tickets);
    log.close().unwrap();
}

/// Holds the first call that it gets, until it is opened.
#[derive(Default)]
struct Held {
    /// Whether a call came, and whether it may continue.
    state: Mutex<(bool, bool)>,
    opened: Condvar,
}

impl Held {
    fn hold(&self) {
        let mut state = self.state.lock().unwrap();
        if !std::mem::replace(&mut state.0, true) {
            drop(self.opened.wait_while(state, |state| !state.1).unwrap());
        }
    }

    fn is_reached(&self) -> bool {
        self.state.lock().unwrap().0
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.opened.notify_all();
    }
}

/// Opens both also after a failure.
struct OpensBoth([Arc<Held>; 2]);

impl Drop for OpensBoth {
    fn drop(&mut self) {
        self.0.iter().for_each(|held| held.open());
    }
}

/// The sync begins when all writes of its group are complete. Until it ends, none counts.
#[test]
fn a_waiting_caller_ends_the_group() {
    let disk = SimDisk::new(1);
    let (durable, plain) = (Arc::<Held>::default(), Arc::<Held>::default());
    let holds = [(DURABLE, Arc::clone(&durable)), (PLAIN, Arc::clone(&plain))];
    let (hooked, calls) = watched(&disk, move |asked| {
        holds.iter().filter(|(of, _)| *of == asked).for_each(|(_, held)| held.hold());
    });
    let (mut options, _) = options(&disk);
    options.disk = Arc::new(hooked);
    options.engine = Some(Engine::new(3).unwrap());
    let log = Log::builder(DIR).options(options).open().unwrap();
    // Opens them before the log is dropped.
    let _opens = OpensBoth([Arc::clone(&durable), Arc::clone(&plain)]);
    // Most is staged before the first write ends. It is not one of a group, nor perhaps the next.
    let mut before = log.append(payload(1)).unwrap();
    assert!(poll_once(&mut before).is_pending());
    until("the first write", || durable.is_reached());
    let mut tickets = stage(&log, 6 * PER_BUFFER + 1);
    durable.open();
    until("a write of the group", || plain.is_reached());
    until("the records before it are durable", || {
        let seen = log.durable();
        std::thread::sleep(Duration::from_millis(50));
        seen >= Seq(1) && log.durable() == seen
    });
    let seen = log.durable();
    let first = seen.0 as usize - 1;
    assert!(poll_once(&mut tickets[first]).is_pending());
    std::thread::sleep(Duration::from_millis(50));
    assert!(!take(&calls).contains(&FileCall::Sync), "a sync beside a write that it is to cover");
    assert_eq!(log.durable(), seen);
    plain.open();
    in_time("the caller", move || tickets.swap_remove(first).blocking_wait().unwrap());
    let asked = take(&calls);
    let synced = asked.iter().position(|asked| *asked == FileCall::Sync);
    assert!(synced.is_some_and(|at| at <= 1), "the group went on beside a caller: {asked:?}");
    until("all is durable", || log.durable() == log.accepted());
    log.close().unwrap();
}

#[test]
fn a_failed_sync_fails_its_whole_group() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let (log, engine, _) = open_watched(&disk, |_| {});
        drop(stage(&log, 1));
        engine.run();
        assert_eq!(log.durable(), Seq(1));
        disk.inject(Fault::on(Op::Sync, Effect::Io).path(".seg").times(1));
        let tickets = stage(&log, 5 * PER_BUFFER);
        engine.run();
        assert_eq!(log.durable(), Seq(1), "seed {seed}");
        for ticket in tickets {
            let error = ticket.blocking_wait().unwrap_err();
            assert!(is_eio(&error) || error.to_string().contains("stop"), "seed {seed}: {error}");
        }
        drop(log);
        disk.power_cut(Persist::Random);
        disk.power_on();
        let (log, ..) = open_watched(&disk, |_| {});
        let last = log.durable().0;
        assert!((1..=1 + 5 * PER_BUFFER).contains(&last), "seed {seed}: {last}");
        assert_eq!(all(&log), payloads(last), "seed {seed}");
        log.close().unwrap();
    }
}

/// Where the file cannot be opened once more, each write is durable by itself.
#[test]
fn a_group_needs_no_second_descriptor() {
    let disk = SimDisk::new(1);
    let (log, engine, calls) = open_watched(&disk, |_| {});
    disk.inject(Fault::on(Op::Open, Effect::Os(24)).path(".seg"));
    drop(stage(&log, GROUP + 1));
    engine.run();
    assert_eq!(log.durable(), Seq(GROUP + 1));
    assert!(!take(&calls).contains(&PLAIN));
    assert_eq!(all(&log), payloads(GROUP + 1));
    disk.clear_faults();
    log.close().unwrap();
}

/// Power fails at any operation of a run of groups, over segments of several sizes, twice. All that
/// was durable is there, and then a run of what was accepted.
#[test]
fn groups_cut_by_two_crashes_keep_what_was_durable() {
    let mut lost = BTreeSet::new();
    let mut more = BTreeSet::new();
    for seed in 0..120 {
        let disk = SimDisk::new(seed);
        let mut last = 0;
        for life in 0..2 {
            let what = format!("seed {seed}, life {life}");
            let (mut options, engine) = options(&disk);
            options.disk = Arc::new(disk.process());
            options.segment_size = if seed % 3 == 0 { 64 << 10 } else { 256 << 10 };
            let log = Log::builder(DIR).options(options).open().unwrap();
            assert_eq!((log.durable().0, all(&log)), (last, payloads(last)), "{what}");
            disk.cut_power_at(
                // A small segment ends within the second run of groups.
                CutPoint::During(disk.operations() + (seed * 7 + life * 3) % 71),
                Persist::Random,
            );
            for _ in 0..3 {
                for _ in 0..7 * PER_BUFFER {
                    drop(log.append(payload(log.accepted().0 + 1)));
                }
                engine.run();
            }
            let (durable, accepted) = (log.durable().0, log.accepted().0);
            drop(log);
            engine.stop();
            disk.power_cut(Persist::Random);
            disk.power_on();

            let (options, engine) = self::options(&disk);
            let log = Log::builder(DIR).options(options).open().unwrap();
            last = log.durable().0;
            assert!((durable..=accepted).contains(&last), "{what}: {durable} {last} {accepted}");
            assert_eq!(all(&log), payloads(last), "{what}");
            lost.insert(accepted - last);
            more.insert(last - durable);
            disk.kill();
            drop(log);
            engine.stop();
            disk.power_on();
        }
    }
    assert!(lost.len() >= 5 && more.len() >= 3, "lost {lost:?}, kept beyond durable {more:?}");
}

/// Power fails after several groups, and the watermark page does not survive. A flipped bit is
/// reported, or cuts what the guarantees say: the last commit, which may be a group, and one beside
/// it.
#[test]
fn a_flipped_bit_cuts_two_commits_at_most() {
    let disk = SimDisk::new(1);
    let (log, engine, calls) = open_watched(&disk, |_| {});
    for _ in 0..3 {
        drop(stage(&log, 7 * PER_BUFFER));
        engine.run();
    }
    let last = log.durable().0;
    assert_eq!(last, 21 * PER_BUFFER);
    assert!(take(&calls).iter().filter(|asked| **asked == FileCall::Sync).count() >= 3);
    disk.power_cut(Persist::Nothing);
    drop(log);
    engine.stop();
    disk.power_on();

    let path = PathBuf::from(DIR).join("00000000000000000001.seg");
    let bytes = disk.contents(&path).unwrap();
    let (mut reported, mut cut) = (0, BTreeSet::new());
    for seq in 1..=last {
        let payload = payload(seq);
        let at = bytes.windows(LEN).position(|found| found == payload).unwrap() as u64;
        let flipped = disk.fork(seq);
        flipped.flip_bit(&path, (at + 9) * 8).unwrap();
        match Log::builder(DIR).options(options(&flipped).0).open() {
            Err(OpenError::Corrupted(_)) => reported += 1,
            Err(error) => panic!("record {seq}: {error}"),
            Ok(log) => {
                let kept = log.durable().0;
                assert!(kept < seq, "record {seq} was flipped, and {kept} are left");
                assert!(
                    last - kept <= GROUP + PER_BUFFER,
                    "record {seq}: {kept} of {last} are left"
                );
                assert_eq!(all(&log), payloads(kept));
                cut.insert(last - kept);
                drop(log);
            }
        }
    }
    assert!(reported >= last / 2 && cut.len() >= 2, "{reported} reported, {cut:?} cut");
}
