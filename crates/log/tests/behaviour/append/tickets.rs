//! Tickets: a place that is known at once, and the ways to wait until it is durable.
//!
//! Guards: a record that counts as durable before it is.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::time::Duration;

use esker_disk::sim::{Persist, SimDisk};
use esker_log::{Log, Policy, Seq, WaitError};

use crate::fixture::{
    self, DIR, LONG, all, append, block_on, driven, in_time, log, payload, payloads, poll_once,
    small, until,
};

#[test]
fn ticket_has_its_sequence_number_before_it_is_durable() {
    let (log, ..) = log();
    append(&log, 2);
    let ticket = log.append(payload(3)).unwrap();
    let position = ticket.position();
    assert_eq!((ticket.seq(), ticket.is_durable()), (Seq(3), false));
    assert_eq!((log.accepted(), log.durable()), (Seq(3), Seq(2)));
    let appended = ticket.blocking_wait().unwrap();
    assert_eq!((appended.seq, appended.position), (Seq(3), position));
    assert_eq!(log.durable(), Seq(3));
    assert_eq!(log.read_at(position).unwrap().payload(), payload(3));
    log.close().unwrap();
}

#[test]
fn awaited_records_survive_a_power_cut() {
    let (log, disk, _) = log();
    let waited = log.append(payload(1)).unwrap();
    waited.blocking_wait().unwrap();
    let kept = log.append(payload(2)).unwrap();
    assert!(!kept.is_durable());
    disk.power_cut(Persist::Nothing);
    disk.power_on();
    drop((kept, log));
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), payloads(1..=1));
    log.close().unwrap();
}

#[test]
fn one_wait_covers_everything_before_it() {
    let (log, ..) = log();
    let tickets: Vec<_> = (1..=5).map(|seq| log.append(payload(seq)).unwrap()).collect();
    let mut tickets = tickets.into_iter().rev();
    tickets.next().unwrap().blocking_wait().unwrap();
    assert!(tickets.all(|ticket| ticket.is_durable()));
    assert_eq!(log.stats().commits, 1);
    log.close().unwrap();
}

#[test]
fn waits_need_no_runtime_and_no_engine_thread() {
    let (log, _, engine) = log();
    // Blocking: the caller commits by itself.
    log.append(payload(1)).unwrap().blocking_wait().unwrap();
    // As a future: the engine commits, and wakes the task.
    let mut ticket = log.append(payload(2)).unwrap();
    assert!(poll_once(&mut ticket).is_pending());
    engine.run();
    let std::task::Poll::Ready(appended) = poll_once(&mut ticket) else { panic!("pending") };
    assert_eq!(appended.unwrap().seq, Seq(2));
    log.close().unwrap();
}

#[test]
fn a_ticket_can_be_awaited_under_every_policy() {
    let policies = [
        Policy::Always,
        Policy::Batch(1000.try_into().unwrap()),
        Policy::Periodic(Duration::from_secs(3600)),
        Policy::OsBuffered,
    ];
    for policy in policies {
        let disk = SimDisk::new(1);
        let mut options = small(&disk);
        options.policy = policy;
        let log = Log::builder(DIR).options(options).open().unwrap();
        let log = in_time("awaiting", move || {
            block_on(async {
                let appended = log.append_async(&payload(1)).await.unwrap().await.unwrap();
                assert_eq!((appended.seq, log.durable()), (Seq(1), Seq(1)));
                drop(log.append(payload(2)).unwrap());
                log.barrier().unwrap().await.unwrap();
            });
            log.append(payload(3)).unwrap().blocking_wait_timeout(LONG).unwrap();
            log
        });
        disk.power_cut(Persist::Nothing);
        disk.power_on();
        drop(log);
        let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        assert_eq!(all(&log), payloads(1..=3), "{policy:?}");
        log.close().unwrap();
    }
}

/// Another thread's commit is stuck in the disk; so the deadline of this one comes first.
#[test]
fn a_deadline_ends_a_wait_and_the_record_may_still_become_durable() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    let opens = fixture::Opens::block_commits(&disk, &log);
    let late =
        log.append(payload(2)).unwrap().blocking_wait_timeout(Duration::from_millis(20)).err();
    assert!(matches!(late, Some(WaitError::Timeout)), "{late:?}");
    let late = log.append(payload(3)).unwrap().blocking_wait_timeout(Duration::ZERO).err();
    assert!(matches!(late, Some(WaitError::Timeout)), "{late:?}");
    assert_eq!((log.durable(), log.accepted()), (Seq(0), Seq(3)));
    drop(opens);
    block_on(log.wait_durable(3)).unwrap();
    assert_eq!(all(&log), payloads(1..=3));
    log.close().unwrap();
}

#[test]
fn dropped_ticket_leaves_no_waiter() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    for seq in 1..=20 {
        drop(log.append(payload(seq)).unwrap());
    }
    // No ticket is kept, so no wait asks for a commit.
    block_on(log.wait_durable(20)).unwrap();
    assert_eq!(all(&log), payloads(1..=20));
    log.close().unwrap();
}

#[test]
fn kept_ticket_that_is_never_polled_leaves_no_waiter() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    let kept: Vec<_> = (1..=5).map(|seq| log.append(payload(seq)).unwrap()).collect();
    until("they are durable", || kept.iter().all(|ticket| ticket.is_durable()));
    log.close().unwrap();
}

#[test]
fn flush_is_a_barrier_for_everything_accepted_before() {
    let (log, disk, _) = log();
    let kept: Vec<_> = (1..=9).map(|seq| log.append(payload(seq)).unwrap()).collect();
    let flush = log.barrier().unwrap();
    let later = log.append(payload(10)).unwrap();
    assert_eq!(flush.blocking_wait().unwrap().seq, Seq(9));
    assert!(kept.iter().all(|ticket| ticket.is_durable()));
    disk.power_cut(Persist::Nothing);
    disk.power_on();
    drop((kept, later, log));
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert!(all(&log).starts_with(&payloads(1..=9)));
    log.close().unwrap();
}

#[test]
fn a_flush_of_nothing_is_done_at_once_and_writes_nothing() {
    let (log, disk, _) = log();
    log.barrier().unwrap().blocking_wait().unwrap();
    append(&log, 1);
    let before = disk.operations();
    for _ in 0..3 {
        assert_eq!(log.barrier().unwrap().blocking_wait().unwrap().seq, Seq(1));
    }
    assert_eq!(disk.operations(), before);
    log.close().unwrap();
}

#[test]
fn a_ticket_outlives_the_handles_of_its_log() {
    let (log, ..) = log();
    let ticket = log.append(payload(1)).unwrap();
    drop(log);
    assert_eq!(in_time("the ticket", move || ticket.blocking_wait()).unwrap().seq, Seq(1));
}
