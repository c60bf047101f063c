//! Closing: everything accepted is durable, every waiting caller returns, the lock is free, and it
//! is quick.
//!
//! Guards: a close that waits for ever; an idle close that takes a second.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use esker_disk::sim::{Effect, Fault, Gate, Persist, SimDisk};
use esker_disk::{Disk, Op};
use esker_log::{
    Append, AppendError, Engine, Error, Log, LogError, OpenError, PriorShutdown, Seq, Sink, Start,
    WaitError,
};

use crate::fixture::{
    self, DIR, LONG, all, append, block_on, driven, in_time, is_eio, log, payload, payloads,
    poll_once, rest, small, until,
};

fn closed<T>(outcome: Result<T, impl Into<Error>>) {
    let error: Option<Error> = outcome.err().map(Into::into);
    assert!(matches!(error, Some(Error::Closed)), "{error:?}");
}

#[test]
fn close_makes_everything_accepted_durable() {
    let (log, disk, _) = log();
    let kept: Vec<_> = (1..=30).map(|seq| log.append(payload(seq)).unwrap()).collect();
    assert!(!kept[29].is_durable());
    log.close().unwrap();
    assert!(kept.iter().all(|ticket| ticket.is_durable()));
    for ticket in kept {
        ticket.blocking_wait().unwrap();
    }
    disk.power_cut(Persist::Nothing);
    disk.power_on();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
    assert_eq!(all(&log), payloads(1..=30));
    log.close().unwrap();
}

/// Guards: without threads, one commit woke tasks while the next was in flight on that thread.
#[test]
fn a_waker_may_close_the_log_while_commits_are_in_flight() {
    struct Closes(Mutex<Option<Log>>);
    impl Wake for Closes {
        fn wake(self: Arc<Self>) {
            let log = self.0.lock().unwrap().take();
            log.into_iter().for_each(|log| log.close().unwrap());
        }
    }
    in_time("the wake", || {
        let (log, _, _engine) = log();
        append(&log, 1);
        let closes = Waker::from(Arc::new(Closes(Mutex::new(Some(log.clone())))));
        let mut first = log.append([2; 6 << 10]).unwrap();
        let second = log.append([3; 6 << 10]).unwrap();
        assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&closes)).is_pending());
        second.blocking_wait().unwrap();
        closed(log.append(b"late"));
    });
}

/// A thread that is slow between waking the callers and what it does after that. It stored the
/// watermark then, perhaps into the page of the next writer.
#[test]
fn a_store_of_the_watermark_does_not_follow_close() {
    for fails in [false, true] {
        let disk = SimDisk::new(1);
        let engine = Engine::new(1).unwrap();
        let log = fixture::log_on(&disk, &engine);
        append(&log, 1);
        let slow = Arc::new(SlowWaker(Mutex::new(()), AtomicBool::new(false)));
        let held = slow.0.lock().unwrap();
        // A timer may commit it before it is polled.
        let gate = fixture::Opens(disk.clone(), Gate::new());
        disk.inject(Fault::on(Op::Write, Effect::Block(gate.1.clone())).path(".seg"));
        let mut ticket = log.append(payload(2)).unwrap();
        let waker = Waker::from(Arc::clone(&slow));
        assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(gate);
        until("the caller is woken", || slow.1.load(Ordering::SeqCst));
        if fails {
            disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg"));
            log.append(payload(3)).and_then(|ticket| Ok(ticket.blocking_wait()?)).unwrap_err();
            log.close().unwrap_err();
            disk.clear_faults();
        } else {
            log.close().unwrap();
        }
        assert_eq!(durable_of_page(&disk), 2);
        let next = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        append(&next, 1);
        let page = disk.contents(Path::new("/log/mark")).unwrap();
        drop(held);
        // The engine has one thread, which commits for another log after that.
        let other = fixture::log_on(&SimDisk::new(2), &engine);
        let mut after = other.append(b"x").unwrap();
        let _ = poll_once(&mut after);
        block_on(after).unwrap();
        assert_eq!(disk.contents(Path::new("/log/mark")).unwrap(), page, "fails: {fails}");
        next.close().unwrap();
        other.close().unwrap();
    }
}

/// Says that it was called, and returns when its lock is free.
struct SlowWaker(Mutex<()>, AtomicBool);

impl Wake for SlowWaker {
    fn wake(self: Arc<Self>) {
        self.1.store(true, Ordering::SeqCst);
        drop(self.0.lock());
    }
}

/// The last record that the watermark page has as durable, of a log that is closed.
fn durable_of_page(disk: &SimDisk) -> u64 {
    let page = disk.contents(Path::new("/log/mark")).unwrap();
    let seq = |slot: usize| u64::from_le_bytes(page[slot + 40..slot + 48].try_into().unwrap());
    seq(0).max(seq(4096))
}

#[test]
fn after_close_every_call_says_closed() {
    let (log, ..) = log();
    append(&log, 3);
    let mut stream = log.stream(Start::Oldest).unwrap();
    let mut sink = Sink::new(&log).unwrap();
    let view = log.read(2).unwrap();
    log.close().unwrap();
    closed(log.close());
    closed(log.close_timeout(LONG));
    closed(log.append(b"x"));
    closed(log.try_append(b"x"));
    closed(log.append_timeout(b"x", LONG));
    closed(log.write(Append::records(&[b"x"; 2])));
    closed(log.write(Append::records(&[b"x"; 2]).atomic()));
    closed(block_on(log.append_async(b"x")));
    closed(log.barrier());
    closed(log.read(1));
    closed(log.read_at(view.record().position));
    closed(log.component().pending_records());
    closed(log.retention().truncate_before(2));
    closed(log.stream(Start::Oldest));
    closed(Sink::new(&log));
    closed(block_on(log.wait_durable(4)));
    closed(stream.try_next());
    closed(stream.blocking_next());
    closed(sink.blocking_append(b"x"));
    // What is in the hand stays, and so does what the log knows without its files.
    assert_eq!(view.payload(), payload(2));
    assert_eq!(log.storage().metadata().durable, log.durable());
    block_on(log.wait_durable(3)).unwrap();
}

#[test]
fn the_last_handle_closes_the_log() {
    let (log, disk, _) = log();
    let other = log.clone();
    drop(log.append(payload(1)).unwrap());
    drop(log);
    drop(other.append(payload(2)).unwrap());
    assert!(matches!(
        Log::builder(DIR).options(driven(&disk).0).open(),
        Err(OpenError::Locked { .. })
    ));
    drop(other);
    disk.power_cut(Persist::Nothing);
    disk.power_on();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
    assert_eq!(all(&log), payloads(1..=2));
    log.close().unwrap();
}

#[test]
fn close_ends_every_wait() {
    let log = Log::builder(DIR).options(small(&SimDisk::new(1))).open().unwrap();
    append(&log, 2);
    let mut stream = log.stream(Start::Tip).unwrap();
    let (reader, watcher) = (log.clone(), log.clone());
    in_time("waiting", move || {
        let reads = std::thread::spawn(move || stream.blocking_next());
        let watches = std::thread::spawn(move || block_on(watcher.wait_durable(100)));
        until("both wait", || reader.stats().waiting == 2);
        // A timer that the last append may have started wakes all waiters, too; it is over by then.
        std::thread::sleep(Duration::from_millis(100));
        reader.close().unwrap();
        closed(reads.join().unwrap());
        closed(watches.join().unwrap());
    });
    closed(log.close());
}

/// Fifty writers: what was accepted becomes durable, the rest is refused, and the log reads to its
/// end.
#[test]
fn close_among_writers_keeps_every_record_reported_durable() {
    // Where the close falls between a commit and the next is chance.
    (0..10).for_each(close_among_writers);
}

fn close_among_writers(seed: u64) {
    let disk = SimDisk::new(seed);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    let durable = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                loop {
                    match log.append(b"0123456789") {
                        Ok(ticket) => ticket.blocking_wait().unwrap(),
                        Err(AppendError::Log(LogError::Closed)) => break,
                        Err(error) => panic!("{error}"),
                    };
                    durable.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        until("some are durable", || durable.load(Ordering::SeqCst) > 100);
        log.close().unwrap();
    });
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
    let left = all(&log);
    assert!(left.len() >= durable.load(Ordering::SeqCst));
    assert!((1..).zip(&left).all(|(n, (seq, payload))| n == *seq && payload == b"0123456789"));
    log.close().unwrap();
}

#[test]
fn close_times_out_at_its_deadline_and_continues_in_the_background() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    append(&log, 1);
    let opens = fixture::Opens::block_commits(&disk, &log);
    let kept = log.append(payload(3)).unwrap();
    let late = log.close_timeout(Duration::from_millis(20));
    assert!(matches!(late, Err(WaitError::Timeout)), "{late:?}");
    closed(log.append(b"x"));
    // The commit continues, so the lock is kept.
    assert!(disk.open_dir(Path::new(DIR)).unwrap().lock().is_err());
    drop(opens);
    kept.blocking_wait_timeout(LONG).unwrap();
    drop(log);
    let log = in_time("the lock", move || {
        loop {
            match Log::builder(DIR).options(driven(&disk).0).open() {
                Err(OpenError::Locked { .. }) => std::thread::sleep(Duration::from_millis(1)),
                other => return other.unwrap(),
            }
        }
    });
    assert_eq!(all(&log), payloads(1..=3));
    log.close().unwrap();
}

#[test]
fn a_close_that_fails_says_why_and_the_log_is_closed_all_the_same() {
    let (log, disk, _) = log();
    append(&log, 3);
    let ticket = log.append(payload(4)).unwrap();
    disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg"));
    let failed = log.close().unwrap_err();
    assert!(is_eio(&failed), "{failed:?}");
    disk.clear_faults();
    closed(log.close());
    assert!(is_eio(&ticket.blocking_wait().unwrap_err()));
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Unclean);
    assert!(all(&log).starts_with(&payloads(1..=3)));
    log.close().unwrap();
}

#[test]
fn a_pending_ticket_resolves_at_close() {
    let (log, ..) = log();
    let mut ticket = log.append(payload(1)).unwrap();
    assert!(poll_once(&mut ticket).is_pending());
    log.close().unwrap();
    assert!(matches!(poll_once(&mut ticket), std::task::Poll::Ready(Ok(_))));
}

#[test]
fn a_log_that_was_never_written_closes_and_opens() {
    let (log, disk, _) = log();
    log.close().unwrap();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    let mut stream = log.stream(Start::Oldest).unwrap();
    assert_eq!(
        (log.storage().recovery().prior_shutdown, log.durable(), rest(&mut stream)),
        (PriorShutdown::Clean, Seq(0), vec![])
    );
    log.close().unwrap();
}

/// The quickest of twenty, so that a slow machine is no failure and a wait in the code is one.
#[test]
fn an_idle_close_takes_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let quickest = (0..20).map(|n| {
        let log = Log::open(dir.path().join(n.to_string())).unwrap();
        append(&log, 1);
        let start = Instant::now();
        log.close().unwrap();
        start.elapsed()
    });
    let quickest = quickest.min().unwrap();
    assert!(quickest < Duration::from_millis(100), "{quickest:?}");
}
