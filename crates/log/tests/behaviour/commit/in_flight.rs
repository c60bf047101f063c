//! Several commits in flight: they end in any order, and count in their own.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, Persist, SimDisk};
use esker_log::{
    AppendError, Engine, Log, LogError, Options, PriorShutdown, Seq, Ticket, WaitError,
};

use crate::fixture::{
    self, DIR, LONG, Opens, all, append, driven, in_time, is_eio, payload, payloads, small, until,
};

fn open(disk: &SimDisk, set: impl FnOnce(&mut Options)) -> Log {
    let mut options = small(disk);
    options.engine = Some(Engine::new(2).unwrap());
    set(&mut options);
    Log::builder(DIR).options(options).open().unwrap()
}

/// Two commits: the first hangs, before or after it reached the disk; the second is done.
fn first_hangs(disk: &SimDisk, log: &Log, effect: impl Fn(Gate) -> Effect) -> (Gate, [Ticket; 2]) {
    append(log, 1);
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Write, effect(gate.clone())).path(".seg").nth(1));
    let mut first = log.append(payload(2)).unwrap();
    let _ = fixture::poll_once(&mut first);
    assert!(gate.wait_for(1, LONG));
    let mut second = log.append(payload(3)).unwrap();
    let _ = fixture::poll_once(&mut second);
    until("the second commit is written", || written(log) == 2);
    (gate, [first, second])
}

/// Two commits: the first hangs, and the second has failed.
fn second_fails(disk: &SimDisk, log: &Log) -> (Gate, [Ticket; 2]) {
    append(log, 1);
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg").nth(1));
    disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg").nth(1));
    let tickets = [2, 3].map(|seq| {
        let mut ticket = log.append(payload(seq)).unwrap();
        assert!(fixture::poll_once(&mut ticket).is_pending());
        assert!(gate.wait_for(1, LONG));
        ticket
    });
    until("the second commit failed", || log.append(b"x").is_err());
    (gate, tickets)
}

/// Commits that the disk took.
fn written(log: &Log) -> u64 {
    log.stats().commits
}

#[test]
fn commit_is_durable_once_all_commits_before_it_are() {
    let disk = SimDisk::new(1);
    let log = open(&disk, |_| {});
    let (gate, [first, second]) = first_hangs(&disk, &log, Effect::Block);
    let _opens = Opens(disk.clone(), gate.clone());
    assert!(!second.is_durable());
    assert_eq!(log.durable(), Seq(1));
    assert_eq!(log.stats().records, 1);
    let second = match second.blocking_wait_timeout(std::time::Duration::from_millis(20)) {
        Err(WaitError::Timeout) => log.barrier().unwrap(),
        other => panic!("{other:?}"),
    };
    gate.open();
    in_time("both", move || {
        first.blocking_wait().unwrap();
        second.blocking_wait().unwrap();
    });
    assert_eq!(all(&log), payloads(1..=3));
    log.close().unwrap();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
    assert_eq!(all(&log), payloads(1..=3));
    log.close().unwrap();
}

/// Units after a missing commit are a torn tail, whichever survives: never corruption.
#[test]
fn power_cut_drops_every_unit_after_a_missing_commit() {
    for (effect, survive) in [
        (Effect::Block as fn(Gate) -> Effect, 1..=1),
        (Effect::BlockReturn as fn(Gate) -> Effect, 1..=3),
    ] {
        let disk = SimDisk::new(1);
        let log = open(&disk, |_| {});
        let (gate, tickets) = first_hangs(&disk, &log, effect);
        let _opens = Opens(disk.clone(), gate.clone());
        let after = disk.fork(7);
        after.power_cut(Persist::Nothing);
        after.power_on();
        let survivor = Log::builder(DIR).options(driven(&after).0).open().unwrap();
        assert_eq!(all(&survivor), payloads(survive));
        let next = survivor.durable().0 + 1;
        assert_eq!(survivor.append(payload(next)).unwrap().blocking_wait().unwrap().seq, Seq(next));
        survivor.close().unwrap();
        gate.open();
        drop(tickets);
    }
}

#[test]
fn failed_commit_leaves_the_commit_before_it_durable() {
    let disk = SimDisk::new(1);
    let log = open(&disk, |_| {});
    let (gate, [mut first, second]) = second_fails(&disk, &log);
    let _opens = Opens(disk.clone(), gate.clone());
    // The first may still become durable, so no caller gets a result.
    assert!(fixture::poll_once(&mut first).is_pending());
    gate.open();
    in_time("both", move || {
        assert_eq!(first.blocking_wait().unwrap().seq, Seq(2));
        let error = second.blocking_wait().unwrap_err();
        assert!(matches!(error, LogError::Io(_)) && is_eio(&error), "{error:?}");
    });
    assert_eq!(log.durable(), Seq(2));
    assert!(matches!(log.append(b"x"), Err(AppendError::Log(LogError::Poisoned(_)))));
    assert!(log.close().is_err());
    disk.clear_faults();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert!(all(&log).starts_with(&payloads(1..=2)));
    log.close().unwrap();
}

#[test]
fn commit_after_a_failed_one_is_never_durable() {
    let disk = SimDisk::new(1);
    let log = open(&disk, |_| {});
    // The first commit fails when the second has long landed.
    let (gate, [first, second]) = first_hangs(&disk, &log, Effect::Block);
    let _opens = Opens(disk.clone(), gate.clone());
    disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg"));
    disk.power_cut(Persist::Nothing);
    gate.open();
    in_time("both", move || {
        first.blocking_wait().unwrap_err();
        second.blocking_wait().unwrap_err();
    });
    assert_eq!(log.durable(), Seq(1));
    drop(log);
    disk.clear_faults();
    disk.power_on();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), payloads(1..=1));
    log.close().unwrap();
}

/// Also where one failed: no write reaches the directory after the lock is released.
#[test]
fn close_waits_for_every_commit_in_flight() {
    let disk = SimDisk::new(1);
    let log = open(&disk, |_| {});
    let (gate, [first, second]) = second_fails(&disk, &log);
    let _opens = Opens(disk.clone(), gate.clone());
    let closing = log.clone();
    let close = std::thread::spawn(move || closing.close());
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!close.is_finished());
    gate.open();
    in_time("close", move || {
        close.join().unwrap().unwrap_err();
        first.blocking_wait().unwrap();
    });
    drop((log, second));
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert!(all(&log).starts_with(&payloads(1..=2)));
    log.close().unwrap();
}

/// A few records beside many would continue taking turns with them, and each commit would carry
/// fewer.
#[test]
fn second_commit_starts_once_it_is_as_large_as_the_first() {
    let disk = SimDisk::new(1);
    let log = open(&disk, |_| {});
    append(&log, 1);
    let gate = Gate::new();
    let _opens = Opens(disk.clone(), gate.clone());
    disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg").nth(1));
    let mut tickets: Vec<Ticket> = Vec::new();
    let more = |tickets: &mut Vec<Ticket>, seqs: std::ops::RangeInclusive<u64>| {
        tickets.extend(seqs.map(|seq| log.append(payload(seq)).unwrap()));
        assert!(fixture::poll_once(tickets.last_mut().unwrap()).is_pending());
    };
    more(&mut tickets, 2..=4);
    assert!(gate.wait_for(1, LONG));
    let before = written(&log);
    more(&mut tickets, 5..=5);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(written(&log), before);
    more(&mut tickets, 6..=7);
    until("as many are written beside the first", || written(&log) == before + 1);
    gate.open();
    in_time("all", move || {
        for ticket in tickets {
            ticket.blocking_wait().unwrap();
        }
    });
    assert_eq!(written(&log), before + 2);
    assert_eq!(all(&log), payloads(1..=7));
    log.close().unwrap();
}

/// A sync covers only the writes that have ended, so where commits are synced there is one at a
/// time.
#[test]
fn one_commit_in_flight_without_dsync() {
    let disk = SimDisk::new(1);
    let log = open(&disk, |options| options.dsync = false);
    append(&log, 1);
    let gate = Gate::new();
    let _opens = Opens(disk.clone(), gate.clone());
    disk.inject(Fault::on(Op::Sync, Effect::Block(gate.clone())).path(".seg"));
    let mut first = log.append(payload(2)).unwrap();
    assert!(fixture::poll_once(&mut first).is_pending());
    assert!(gate.wait_for(1, LONG));
    let mut second = log.append(payload(3)).unwrap();
    assert!(fixture::poll_once(&mut second).is_pending());
    let before = written(&log);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(written(&log), before);
    gate.open();
    in_time("both", move || {
        first.blocking_wait().unwrap();
        second.blocking_wait().unwrap();
    });
    log.close().unwrap();
}
