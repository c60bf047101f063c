//! Callers that wait while the disk hangs: for durability, and for room.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::{Log, Start, WaitError};

use crate::fixture::{
    DIR, LONG, Opens, append, block_on, in_time, payload, poll, poll_once, small, until,
};

fn waiting(log: &Log) -> (usize, usize) {
    let stats = log.metrics().stats;
    (stats.waiting_for_durability, stats.waiting_for_room)
}

fn open(disk: &SimDisk) -> Log {
    let mut options = small(disk);
    options.commits_in_flight = 1;
    Log::builder(DIR).options(options).open().unwrap()
}

#[test]
fn callers_of_each_kind_are_counted_while_a_commit_hangs() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    let opens = Opens::block_commits(&disk, &log);
    assert_eq!((waiting(&log), log.metrics().stats.in_flight), ((0, 0), 1));

    // For durability: threads, a task, a task that waits for a number, and a callback.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| log.append(b"thread").unwrap().blocking_wait().unwrap());
        }
        until("three threads wait", || waiting(&log) == (3, 0));
        let mut ticket = log.append(b"task").unwrap();
        assert!(poll_once(&mut ticket).is_pending());
        assert_eq!(waiting(&log), (4, 0));
        let mut number = Box::pin(log.wait_durable(5));
        assert!(poll_once(&mut number).is_pending());
        assert_eq!(waiting(&log), (5, 0));
        let (sender, receiver) = mpsc::channel();
        let called = move |appended: Result<_, _>| {
            let _ = sender.send(appended.is_ok());
        };
        log.append(b"callback").unwrap().on_durable(called);
        assert_eq!(waiting(&log), (6, 0));
        // A caller that gave up waits no more.
        let timed = log.append(b"timed").unwrap();
        let timeout = timed.blocking_wait_timeout(Duration::from_millis(5));
        assert!(matches!(timeout, Err(WaitError::Timeout)));
        assert_eq!(waiting(&log), (6, 0));

        // For room: threads and a task.
        while log.try_append([0; 900]).map(drop).is_ok() {}
        for _ in 0..2 {
            scope.spawn(|| log.append([1; 900]).unwrap().blocking_wait().unwrap());
        }
        until("two threads wait for room", || waiting(&log) == (6, 2));
        let mut room = Box::pin(log.append_async([2; 900]));
        assert!(poll_once(&mut room).is_pending());
        assert_eq!(waiting(&log), (6, 3));
        drop(room);
        assert_eq!(waiting(&log), (6, 2));

        // A reader at the tip is no caller.
        let mut stream = log.stream(Start::Tip).unwrap();
        assert!(poll(&mut stream, std::task::Waker::noop()).is_pending());
        assert_eq!(waiting(&log), (6, 2));

        drop(opens);
        assert_eq!(receiver.recv_timeout(LONG), Ok(true));
        block_on(&mut ticket).unwrap();
        block_on(&mut number).unwrap();
        // The ticket is still there, and was woken.
        until("no one waits", || waiting(&log) == (0, 0));
        drop(ticket);
    });
    log.barrier().unwrap().blocking_wait().unwrap();
    until("nothing is in flight", || log.metrics().stats.in_flight == 0);
    log.close().unwrap();
}

/// The caller is in no queue while it runs the commit itself.
#[test]
fn a_caller_that_runs_the_commit_waits_too() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append(&log, 1);
    let gate = Gate::new();
    let opens = Opens(disk.clone(), gate.clone());
    let ran = AtomicU64::new(0);
    disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let appended = log.append(payload(2)).unwrap().blocking_wait().unwrap();
            ran.store(appended.seq.0, Ordering::SeqCst);
        });
        assert!(gate.wait_for(1, LONG));
        until("the caller waits", || waiting(&log) == (1, 0));
        let stats = log.metrics().stats;
        assert_eq!((stats.in_flight, stats.pending), (1, 1));
        drop(opens);
    });
    assert_eq!(ran.into_inner(), 2);
    assert_eq!((waiting(&log), log.metrics().stats.in_flight), ((0, 0), 0));
    log.close().unwrap();
}

/// A failed write stops the log, and leaves no caller counted.
#[test]
fn metrics_are_there_after_a_failure() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    append(&log, 2);
    disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg"));
    log.append(b"x").unwrap().blocking_wait().unwrap_err();
    let metrics = log.metrics();
    assert_eq!((metrics.stats.appended, metrics.stats.records), (3, 2));
    assert_eq!((metrics.stats.in_flight, waiting(&log)), (0, (0, 0)));
    assert_eq!(metrics.metadata.records, 3, "one is in a commit that failed");
    assert!(log.close().is_err());
}

/// Metrics are there while any call of the disk hangs: those of commits, and those that make room.
#[test]
fn a_hung_disk_does_not_block_metrics() {
    for op in [Op::Write, Op::Sync, Op::Size, Op::Open, Op::Rename, Op::SyncDir] {
        let disk = SimDisk::new(1);
        let mut options = small(&disk);
        options.dsync = false;
        options.retention.segments = Some(2);
        let log = Log::builder(DIR).options(options).open().unwrap();
        append(&log, 10);
        let gate = Gate::new();
        let opens = Opens(disk.clone(), gate.clone());
        disk.inject(Fault::on(op, Effect::Block(gate.clone())));
        std::thread::scope(|scope| {
            scope.spawn(|| append(&log, 400));
            assert!(gate.wait_for(1, LONG), "{op}");
            let asked = log.clone();
            let metrics = in_time("metrics", move || asked.metrics());
            assert!(metrics.stats.appended >= 10, "{op}");
            drop(opens);
        });
        assert_eq!(log.metrics().stats.appended, 410);
        log.close().unwrap();
    }
}
