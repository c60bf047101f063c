//! Staging memory is bounded: appends wait, time out or return `Full`; and staging does not wait
//! for a commit in progress.
//!
//! Guards: a buffer that exceeds its limit; staging after an fsync.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::{Append, AppendError, Error, Log, Seq, Sink, WriteError};

use crate::fixture::{
    self, DIR, LONG, Opens, all, block_on, in_time, payload, payloads, poll_once, small, until,
};

/// A log whose commits are blocked in the disk.
pub fn stuck() -> (Log, Opens) {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    // Another caller would find the next commit free to be driven, and be stuck in it.
    options.commits_in_flight = 1;
    let log = Log::builder(DIR).options(options).open().unwrap();
    let opens = Opens::block_commits(&disk, &log);
    (log, opens)
}

/// Appends without waiting until there is no room; the number of the last record that found some.
pub fn fill(log: &Log) -> u64 {
    loop {
        let next = log.accepted().0 + 1;
        match log.try_append(payload(next)) {
            Ok(ticket) => drop(ticket),
            Err(AppendError::Full) => return next - 1,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Whether a sink would accept a record now.
fn has_room(log: &Log) -> bool {
    let mut sink = Sink::new(log).unwrap();
    let cx = &mut Context::from_waker(Waker::noop());
    match futures_util::Sink::<&[u8]>::poll_ready(Pin::new(&mut sink), cx) {
        Poll::Ready(ready) => ready.is_ok(),
        Poll::Pending => false,
    }
}

#[test]
fn appends_are_staged_while_a_commit_hangs() {
    let (log, opens) = stuck();
    for seq in 2..=5 {
        drop(log.append(payload(seq)).unwrap());
    }
    assert_eq!((log.durable(), log.accepted()), (Seq(0), Seq(5)));
    drop(opens);
    log.barrier().unwrap().blocking_wait().unwrap();
    // Everything that came meanwhile is the next commit.
    assert_eq!(log.stats().commits, 2);
    assert_eq!(all(&log), payloads(1..=5));
    log.close().unwrap();
}

#[test]
fn memory_stays_bounded_and_try_append_returns_full() {
    let (log, opens) = stuck();
    let last = fill(&log);
    // Two buffers of 8 KiB hold payloads of 750 bytes at the mean.
    assert!((8..=24).contains(&last), "{last}");
    assert!(log.stats().memory_bytes <= 2 * (8 << 10), "{}", log.stats().memory_bytes);
    assert!(matches!(log.try_append(vec![0; 100_000]), Err(AppendError::Full)));
    assert!(log.stats().memory_bytes <= 2 * (8 << 10));
    assert!(!has_room(&log));
    assert_eq!(log.accepted(), Seq(last), "a refused append leaves nothing");
    drop(opens);
    until("room", || has_room(&log));
    drop(log.append(payload(last + 1)).unwrap());
    log.barrier().unwrap().blocking_wait().unwrap();
    assert_eq!(all(&log), payloads(1..=last + 1));
    log.close().unwrap();
}

/// Each of these records fills a buffer of its own.
#[test]
fn large_records_stay_within_the_bound_too() {
    let (log, opens) = stuck();
    drop(log.try_append([0; 7000]).unwrap());
    assert!(matches!(log.try_append([0; 7000]), Err(AppendError::Full)));
    assert_eq!((log.accepted(), log.stats().memory_bytes), (Seq(2), 2 * (8 << 10)));
    drop(opens);
    log.barrier().unwrap().blocking_wait().unwrap();
    log.close().unwrap();
}

#[test]
fn twenty_writers_wait_for_a_hung_commit_within_the_bound_and_finish() {
    let (log, opens) = stuck();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..20)
            .map(|n| {
                let log = &log;
                scope.spawn(move || {
                    for _ in 0..20 {
                        log.append([n; 900]).unwrap().blocking_wait().unwrap();
                    }
                })
            })
            .collect();
        until("some writers wait", || log.stats().waiting >= 10);
        let memory = log.stats().memory_bytes;
        assert!(memory <= 2 * (8 << 10) + 1000, "{memory}");
        assert!(writers.iter().all(|writer| !writer.is_finished()));
        drop(opens);
    });
    assert_eq!(log.durable(), Seq(401));
    assert_eq!(all(&log).len(), 401);
    assert_eq!(log.stats().waiting, 0);
    log.close().unwrap();
}

#[test]
fn a_wait_for_room_ends_at_its_deadline_with_nothing_accepted() {
    let (log, opens) = stuck();
    let last = fill(&log);
    let start = Instant::now();
    let late = log.append_timeout(vec![0; 4000], Duration::from_millis(30)).err();
    assert!(matches!(late, Some(AppendError::Timeout)), "{late:?}");
    assert!(start.elapsed() >= Duration::from_millis(30));
    let late = log.append_timeout(vec![0; 4000], Duration::ZERO).err();
    assert!(matches!(late, Some(AppendError::Timeout)), "{late:?}");
    assert_eq!(log.accepted(), Seq(last));
    drop(opens);
    let ticket = log.append_timeout(payload(last + 1), LONG).unwrap();
    assert_eq!(ticket.blocking_wait().unwrap().seq, Seq(last + 1));
    log.close().unwrap();
}

#[test]
fn an_append_that_waits_for_room_is_woken_blocking_or_async() {
    let (log, opens) = stuck();
    let last = fill(&log);
    let blocking = log.clone();
    let blocking =
        std::thread::spawn(move || blocking.append(vec![1; 4000]).unwrap().blocking_wait());
    let other = log.clone();
    let task = std::thread::spawn(move || {
        block_on(async { other.append_async(&vec![2; 4000]).await.unwrap().await })
    });
    until("both wait", || log.stats().waiting == 2);
    drop(opens);
    in_time("the appends", move || {
        blocking.join().unwrap().unwrap();
        task.join().unwrap().unwrap();
    });
    assert_eq!(log.durable(), Seq(last + 2));
    log.close().unwrap();
}

#[test]
fn only_those_whose_records_are_durable_are_woken() {
    let (log, opens) = stuck();
    let wakes = [(); 2].map(|()| std::sync::Arc::new(fixture::Wakes::default()));
    // The second does not fit into the buffer of the first.
    let mut tickets = [3000, 7000].map(|size| log.append(vec![0; size]).unwrap());
    for (ticket, wakes) in tickets.iter_mut().zip(&wakes) {
        let waker = std::task::Waker::from(std::sync::Arc::clone(wakes));
        let polled = std::future::Future::poll(
            std::pin::Pin::new(ticket),
            &mut std::task::Context::from_waker(&waker),
        );
        assert!(polled.is_pending());
    }
    // The first commit returns, the second is stuck.
    let Opens(disk, gate) = &opens;
    let second = Gate::new();
    let _second = Opens(disk.clone(), second.clone());
    disk.clear_faults();
    disk.inject(Fault::on(Op::Write, Effect::Block(second.clone())).path(".seg").after(1));
    gate.open();
    assert!(second.wait_for(1, LONG));
    until("the mark has moved", || log.durable() >= Seq(2));
    until("the first is woken", || wakes[0].count() == 1);
    assert_eq!(wakes[1].count(), 0, "woken for another's commit");
    assert!(poll_once(&mut tickets[1]).is_pending());
    disk.clear_faults();
    second.open();
    log.barrier().unwrap().blocking_wait().unwrap();
    until("the second is woken", || log.durable() == Seq(3));
    drop(tickets);
    log.close().unwrap();
}

/// Every form of an atomic append: what waits accepts nothing before it has room for all.
#[test]
fn an_atomic_append_without_room_waits_as_its_name_says_and_accepts_nothing() {
    let (log, opens) = stuck();
    let last = fill(&log);
    let batch = [payload(last + 1), payload(last + 2), vec![7; 4000]];
    let full = log.try_write(Append::records(&batch).atomic());
    assert!(matches!(full, Err(WriteError { error: AppendError::Full, accepted: 0, .. })));
    let late = log.write_timeout(Append::records(&batch).atomic(), Duration::from_millis(30)).err();
    assert!(
        matches!(late, Some(WriteError { error: AppendError::Timeout, accepted: 0, .. })),
        "{late:?}"
    );
    let mut dropped = Box::pin(log.write_async(Append::records(&batch).atomic()));
    assert!(poll_once(&mut dropped).is_pending());
    assert_eq!(log.stats().waiting, 1);
    drop(dropped);
    assert_eq!((log.accepted(), log.stats().waiting), (Seq(last), 0));
    let mut waiting = Box::pin(log.write_async(Append::records(&batch).atomic()));
    assert!(poll_once(&mut waiting).is_pending());
    drop(opens);
    let ticket = block_on(waiting).unwrap();
    assert_eq!(ticket.blocking_wait().unwrap().seq, Seq(last + 3));
    let two = [payload(last + 4), payload(last + 5)];
    let ticket = log.write_timeout(Append::records(&two).atomic(), LONG).unwrap();
    assert_eq!(ticket.blocking_wait().unwrap().seq, Seq(last + 5));
    assert_eq!(log.try_write(Append::records(&[b"x"; 2]).atomic()).unwrap().seq(), Seq(last + 7));
    log.close().unwrap();
}

#[test]
fn a_conditional_append_without_room_waits_as_its_name_says() {
    let (log, opens) = stuck();
    let last = fill(&log);
    let large = vec![7; 4000];
    assert!(matches!(
        log.try_write(Append::numbered(Seq(last), &[(Seq(last + 1), &large)])),
        Err(WriteError { error: AppendError::Full, .. })
    ));
    // Its condition fails before there is room.
    let late = log.try_write(Append::numbered(Seq(last - 1), &[(Seq(last + 1), &large)]));
    let late = late.map_err(Error::from).err();
    assert!(matches!(late, Some(Error::Sequence { .. } | Error::Conflict { .. })), "{late:?}");
    let numbered = [(Seq(last + 5), &large)];
    let mut waiting = Box::pin(log.write_async(Append::numbered(Seq(last), &numbered)));
    assert!(poll_once(&mut waiting).is_pending());
    drop(opens);
    let ticket = block_on(waiting).unwrap();
    assert_eq!(ticket.blocking_wait().unwrap().seq, Seq(last + 5));
    let ticket = log.try_write(Append::numbered(Seq(last + 5), &[(Seq(last + 9), b"x")])).unwrap();
    assert_eq!(ticket.seq(), Seq(last + 9));
    log.close().unwrap();
}
