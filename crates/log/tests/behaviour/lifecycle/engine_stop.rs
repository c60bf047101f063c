//! The engine stops, or dies: every call, `close` included, comes back and says so.
//!
//! Guards: a close that waits for ever for a worker that is dead.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_disk::Op;
use esker_disk::sim::SimDisk;
use esker_log::{Append, Engine, Error, Log, LogError, Options, Seq, Start};
use esker_testkit::{Call, HookedDisk};

use crate::fixture::{
    DIR, LONG, all, append, block_on, driven, in_time, log, payload, payloads, poll_once, small,
};

fn stopped<T>(outcome: Result<T, impl Into<Error>>) {
    let error: Option<Error> = outcome.err().map(Into::into);
    assert!(matches!(error, Some(Error::Stopped)), "{error:?}");
}

fn everything_says_stopped(log: &Log) {
    stopped(log.append(b"x"));
    stopped(log.try_append(b"x"));
    stopped(log.write(Append::records(&[b"x"; 2])));
    stopped(log.write(Append::records(&[b"x"; 2]).atomic()));
    stopped(block_on(log.append_async(b"x")));
    stopped(log.barrier());
    stopped(block_on(log.wait_durable(1000)));
    let mut tip = log.stream(Start::Tip).unwrap();
    stopped(tip.blocking_next());
}

/// A stopped log refuses every call and closes. It opens again with its 10 durable records.
fn closes_and_reopens(log: Log, disk: SimDisk) {
    in_time("a call", move || {
        everything_says_stopped(&log);
        stopped(log.close());
    });
    let log =
        in_time("opening", move || Log::builder(DIR).options(driven(&disk).0).open().unwrap());
    assert!(all(&log).starts_with(&payloads(1..=10)));
    log.close().unwrap();
}

#[test]
fn a_stopped_engine_refuses_and_reads_continue() {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    let engine = Engine::new(1).unwrap();
    options.engine = Some(engine.clone());
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 20);
    engine.stop();
    let log = in_time("a call", move || {
        everything_says_stopped(&log);
        log
    });
    assert_eq!(all(&log), payloads(1..=log.durable().0));
    assert_eq!(log.read(20).unwrap().payload(), payload(20));
    in_time("close", move || stopped(log.close()));
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert!(all(&log).starts_with(&payloads(1..=20)));
    log.close().unwrap();
}

#[test]
fn engine_stop_ends_the_wait_of_a_ticket() {
    let (log, _, engine) = log();
    let mut ticket = log.append(payload(1)).unwrap();
    assert!(poll_once(&mut ticket).is_pending());
    engine.stop();
    let std::task::Poll::Ready(outcome) = poll_once(&mut ticket) else { panic!("pending") };
    stopped(outcome);
    in_time("close", move || stopped(log.close()));
}

/// Options with a disk that panics on a write to a segment, while the flag is set.
fn bomb(disk: &SimDisk) -> (Options, Arc<AtomicBool>) {
    let lit = Arc::new(AtomicBool::new(false));
    let fuse = Arc::clone(&lit);
    let hook = move |call: &Call<'_>| {
        let segment = call.path.extension().is_some_and(|name| name == "seg");
        let goes_off = call.op == Op::Write && segment && fuse.load(Ordering::SeqCst);
        assert!(!goes_off, "the bomb went off");
        Ok(())
    };
    let mut options = small(disk);
    options.disk = Arc::new(HookedDisk::new(Arc::new(disk.clone()), hook));
    (options, lit)
}

/// The thread that commits panics; waiting callers get the error, and another log on the same
/// engine does not notice.
#[test]
fn a_panic_in_the_engine_stops_one_log_and_nothing_hangs() {
    let disk = SimDisk::new(1);
    let engine = Engine::new(1).unwrap();
    let (mut options, lit) = bomb(&disk);
    options.engine = Some(engine.clone());
    let log = Log::builder(DIR).options(options).open().unwrap();
    let mut options = small(&disk);
    options.engine = Some(engine);
    let other = Log::builder("/other").options(options).open().unwrap();
    append(&log, 10);
    lit.store(true, Ordering::SeqCst);
    drop(log.append(payload(11)).unwrap());
    in_time("a call", move || {
        stopped(block_on(log.wait_durable(11)));
        everything_says_stopped(&log);
        assert_eq!(log.durable(), Seq(10));
        assert_eq!(all(&log), payloads(1..=10));
        assert!(matches!(log.close(), Err(LogError::Stopped)));
        for seq in 1..=10 {
            drop(other.append(payload(seq)).unwrap());
        }
        block_on(other.wait_durable(10)).unwrap();
        other.close().unwrap();
    });
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert!(all(&log).starts_with(&payloads(1..=10)));
    log.close().unwrap();
}

/// The caller that commits by itself panics; the others get the error, and none hangs.
#[test]
fn a_panic_in_a_caller_that_commits_stops_the_log() {
    let disk = SimDisk::new(1);
    let (options, lit) = bomb(&disk);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 10);
    lit.store(true, Ordering::SeqCst);
    let ticket = log.append(payload(11)).unwrap();
    let kept = log.append(payload(12)).unwrap();
    let panicked = std::thread::spawn(move || ticket.blocking_wait()).join();
    // Or a thread of the engine came first; then the wait got the error.
    if let Ok(outcome) = panicked {
        stopped(outcome);
    }
    in_time("a wait", move || stopped(kept.blocking_wait_timeout(LONG)));
    closes_and_reopens(log, disk);
}

/// The header of the next segment is written while a commit is prepared. A panic there takes the
/// committer along, and closing does not wait for it.
#[test]
fn a_panic_between_segments_does_not_hang_close() {
    let disk = SimDisk::new(1);
    let (mut options, lit) = bomb(&disk);
    options.engine = Some(Engine::manual());
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 10);
    // Too large for the rest of the segment.
    let ticket = log.append(vec![1; 60 << 10]).unwrap();
    lit.store(true, Ordering::SeqCst);
    assert!(std::thread::spawn(move || ticket.blocking_wait()).join().is_err());
    closes_and_reopens(log, disk);
}

#[test]
fn one_engine_serves_many_logs() {
    let disk = SimDisk::new(1);
    let engine = Engine::new(2).unwrap();
    let logs: Vec<_> = (0..64)
        .map(|n| {
            let mut options = small(&disk);
            options.engine = Some(engine.clone());
            Log::builder(format!("/{n}")).options(options).open().unwrap()
        })
        .collect();
    for round in 1..=5 {
        for log in &logs {
            drop(log.append(payload(round)).unwrap());
        }
    }
    for log in &logs {
        block_on(log.wait_durable(5)).unwrap();
        assert_eq!(all(log), payloads(1..=5));
        log.close().unwrap();
    }
}
