//! The four policies: when a commit comes unasked, and what a power cut takes at most.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, Persist, SimDisk};
use esker_log::{Append, AppendError, Engine, Log, Policy, Seq};

use crate::fixture::{self, DIR, LONG, all, block_on, driven, in_time, payload, payloads, small};

fn open(policy: Policy) -> (Log, SimDisk, Engine) {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.policy = policy;
    (Log::builder(DIR).options(options).open().unwrap(), disk, engine)
}

fn append_and_drop(log: &Log, numbers: std::ops::RangeInclusive<u64>) {
    for seq in numbers {
        drop(log.append(payload(seq)).unwrap());
    }
}

/// The number of records after a power cut that drops everything that was not synced.
fn after_the_worst_cut(log: Log, disk: &SimDisk, engine: &Engine) -> usize {
    disk.power_cut(Persist::Nothing);
    disk.power_on();
    engine.stop();
    drop(log);
    let log = Log::builder(DIR).options(driven(disk).0).open().unwrap();
    let left = all(&log);
    assert_eq!(left, payloads(1..=left.len() as u64));
    log.close().unwrap();
    left.len()
}

#[test]
fn always_commits_records_without_a_waiter() {
    let (log, disk, engine) = open(Policy::Always);
    append_and_drop(&log, 1..=10);
    engine.run();
    assert_eq!((log.durable(), log.stats().pending), (Seq(10), 0));
    assert_eq!(after_the_worst_cut(log, &disk, &engine), 10);
}

/// One dropped ticket requests the commit of its unit, also if those of earlier units were dropped,
/// and if the others of its unit are kept.
#[test]
fn each_unit_is_committed_when_one_of_its_tickets_is_dropped() {
    for policy in [Policy::Always, Policy::OsBuffered] {
        let (log, _, engine) = open(policy);
        for first in (1..=13).step_by(3) {
            append_and_drop(&log, first..=first);
            let kept = [first + 1, first + 2].map(|seq| log.append(payload(seq)).unwrap());
            engine.run();
            assert_eq!(log.stats().records, first + 2, "{policy:?}");
            drop(kept);
        }
        let kept: Vec<_> = (16..=18).map(|seq| log.append(payload(seq)).unwrap()).collect();
        engine.run();
        assert_eq!(log.stats().records, 15, "no caller requested them: {policy:?}");
        drop(kept.into_iter().nth(1));
        engine.run();
        assert_eq!(log.stats().records, 18, "{policy:?}");
        log.close().unwrap();
    }
}

#[test]
fn a_batch_commits_by_itself_when_it_is_full_and_not_before() {
    let (log, disk, engine) = open(Policy::Batch(5.try_into().unwrap()));
    append_and_drop(&log, 1..=4);
    engine.run();
    engine.advance(Duration::from_secs(3600));
    assert_eq!((log.durable(), log.stats().pending), (Seq(0), 4));
    append_and_drop(&log, 5..=5);
    engine.run();
    assert_eq!(log.durable(), Seq(5));
    append_and_drop(&log, 6..=9);
    engine.run();
    assert_eq!(log.durable(), Seq(5));
    assert_eq!(after_the_worst_cut(log, &disk, &engine), 5);
}

/// An atomic batch counts as one append, however many records it has.
#[test]
fn batch_counts_an_atomic_batch_as_one_append() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.policy = Policy::Batch(100.try_into().unwrap());
    // All of it is one unit.
    options.buffer_size = 256 << 10;
    let log = Log::builder(DIR).options(options).open().unwrap();
    let run_and_wait = || {
        engine.run();
        engine.advance(Duration::from_secs(3600));
    };
    for _ in 0..10 {
        drop(log.write(Append::records(&[b"8 bytes."; 100]).atomic()).unwrap());
        run_and_wait();
    }
    assert_eq!((log.durable(), log.stats().pending), (Seq(0), 1000));
    for _ in 11..100 {
        drop(log.append(b"8 bytes.").unwrap());
        run_and_wait();
    }
    assert_eq!((log.durable(), log.stats().pending), (Seq(0), 1089));
    drop(log.write(Append::records(&[b"8 bytes."; 7]).atomic()).unwrap());
    run_and_wait();
    assert_eq!((log.durable(), log.stats().pending), (Seq(1096), 0));
    log.close().unwrap();
}

/// The records of a batch that is not atomic count one by one.
#[test]
fn batch_counts_each_record_of_a_batch_that_is_not_atomic() {
    let (log, _, engine) = open(Policy::Batch(5.try_into().unwrap()));
    drop(log.write(Append::records(&[b"record"; 4])).unwrap());
    engine.run();
    assert_eq!((log.durable(), log.stats().pending), (Seq(0), 4));
    drop(log.write(Append::records(&[b"record"; 2])).unwrap());
    engine.run();
    assert_eq!((log.durable(), log.stats().pending), (Seq(6), 0));
    log.close().unwrap();
}

/// 2n - 1 with a commit in flight; the append that would exceed that waits.
#[test]
fn batch_bounds_the_records_at_risk() {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    options.policy = Policy::Batch(5.try_into().unwrap());
    let log = Log::builder(DIR).options(options).open().unwrap();
    let gate = Gate::new();
    let _opens = fixture::Opens(disk.clone(), gate.clone());
    disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg"));
    append_and_drop(&log, 1..=5);
    assert!(gate.wait_for(1, LONG));
    append_and_drop(&log, 6..=9);
    assert_eq!(log.stats().pending, 9);
    assert!(matches!(log.try_append(payload(10)), Err(AppendError::Full)));
    let late = log.append_timeout(payload(10), Duration::from_millis(20)).err();
    assert!(matches!(late, Some(AppendError::Timeout)), "{late:?}");
    assert_eq!(log.accepted(), Seq(9));
    disk.clear_faults();
    gate.open();
    let log = in_time("appending", move || {
        log.append(payload(10)).unwrap().blocking_wait().unwrap();
        log
    });
    assert_eq!(all(&log), payloads(1..=10));
    log.close().unwrap();
}

/// The same bound in atomic batches: each counts as one append.
#[test]
fn batch_bounds_the_atomic_batches_at_risk() {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    options.policy = Policy::Batch(5.try_into().unwrap());
    let log = Log::builder(DIR).options(options).open().unwrap();
    let gate = Gate::new();
    let _opens = fixture::Opens(disk.clone(), gate.clone());
    disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg"));
    let batch = [b"record"; 30];
    for _ in 0..5 {
        drop(log.try_write(Append::records(&batch).atomic()).unwrap());
    }
    assert!(gate.wait_for(1, LONG));
    for _ in 5..9 {
        drop(log.try_write(Append::records(&batch).atomic()).unwrap());
    }
    assert_eq!(log.stats().pending, 9 * 30);
    let full = log.try_write(Append::records(&batch).atomic()).unwrap_err();
    assert!(matches!(full.error, AppendError::Full));
    assert!(matches!(log.try_append(b"record"), Err(AppendError::Full)));
    assert_eq!(log.accepted(), Seq(9 * 30));
    disk.clear_faults();
    gate.open();
    let log = in_time("appending", move || {
        log.write(Append::records(&batch).atomic()).unwrap().blocking_wait().unwrap();
        log
    });
    assert_eq!(all(&log).len(), 10 * 30);
    log.close().unwrap();
}

/// A batch that is not full commits as soon as a caller waits for it or asks for a barrier.
#[test]
fn waits_and_barriers_commit_a_batch_that_is_not_full() {
    let (log, _, engine) = open(Policy::Batch(1000.try_into().unwrap()));
    let first = log.append(payload(1)).unwrap();
    let log = in_time("a wait", move || {
        first.blocking_wait().unwrap();
        log
    });
    append_and_drop(&log, 2..=2);
    log.barrier().unwrap().blocking_wait().unwrap();
    assert_eq!(log.durable(), Seq(2));
    engine.stop();
}

#[test]
fn periodic_commits_when_its_time_has_come_and_not_before() {
    let (log, disk, engine) = open(Policy::Periodic(Duration::from_millis(100)));
    append_and_drop(&log, 1..=3);
    engine.advance(Duration::from_millis(60));
    append_and_drop(&log, 4..=6);
    engine.advance(Duration::from_millis(39));
    assert_eq!(log.durable(), Seq(0));
    // The time counts from the first record that has no commit.
    engine.advance(Duration::from_millis(1));
    assert_eq!(log.durable(), Seq(6));
    append_and_drop(&log, 7..=7);
    engine.advance(Duration::from_millis(99));
    assert_eq!(log.durable(), Seq(6));
    engine.advance(Duration::from_millis(1));
    assert_eq!(log.durable(), Seq(7));
    append_and_drop(&log, 8..=8);
    assert_eq!(after_the_worst_cut(log, &disk, &engine), 7);
}

/// The same with the real clock: nothing moves but time.
#[test]
fn periodic_commits_by_its_own_timer() {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    options.policy = Policy::Periodic(Duration::from_millis(5));
    let log = Log::builder(DIR).options(options).open().unwrap();
    for seq in 1..=3 {
        drop(log.append(payload(seq)).unwrap());
        block_on(log.wait_durable(seq)).unwrap();
    }
    log.close().unwrap();
}

#[test]
fn os_buffered_writes_and_syncs_only_on_request() {
    let (log, disk, engine) = open(Policy::OsBuffered);
    let synced = disk.stats().syncs;
    append_and_drop(&log, 1..=10);
    engine.run();
    assert_eq!((disk.stats().syncs, log.durable()), (synced, Seq(0)));
    assert_eq!(log.stats().records, 10, "handed to the system");
    // Readers see durable records, here too.
    assert!(all(&log).is_empty());
    log.barrier().unwrap().blocking_wait().unwrap();
    assert_eq!(log.durable(), Seq(10));
    // One sync of the segment, and one of the watermark page: no unit says that it is durable.
    assert_eq!(disk.stats().syncs, synced + 2);
    append_and_drop(&log, 11..=20);
    engine.run();
    assert_eq!(after_the_worst_cut(log, &disk, &engine), 10);
}

#[test]
fn records_written_under_os_buffered_survive_the_process() {
    let (log, disk, engine) = open(Policy::OsBuffered);
    append_and_drop(&log, 1..=10);
    engine.run();
    disk.kill();
    disk.power_on();
    engine.stop();
    drop(log);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), payloads(1..=10));
    log.close().unwrap();
}

#[test]
fn every_policy_is_durable_when_closed() {
    for policy in [
        Policy::Always,
        Policy::Batch(1000.try_into().unwrap()),
        Policy::Periodic(Duration::from_secs(3600)),
        Policy::OsBuffered,
    ] {
        let (log, disk, engine) = open(policy);
        append_and_drop(&log, 1..=10);
        log.close().unwrap();
        assert_eq!(after_the_worst_cut(log, &disk, &engine), 10, "{policy:?}");
    }
}
