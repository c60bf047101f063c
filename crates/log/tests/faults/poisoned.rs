//! A failed write or sync: the caller gets the cause, the log takes nothing more, what was durable
//! stays readable, and reopening is the way back.
//!
//! Guards: errors that lose their kind; a failed sync that is only printed.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::io::ErrorKind;
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::{
    Append, AppendError, Engine, Error, Log, LogError, Policy, PriorShutdown, Seq, Sink, Start,
    WaitError,
};

use crate::fixture::{
    self, DIR, LONG, all, append, block_on, driven, in_time, is_eio, log, payload, payloads, rest,
};

fn poisoned<T>(outcome: Result<T, impl Into<Error>>) {
    match outcome.err().map(Into::into) {
        Some(error @ Error::Poisoned(_)) if is_eio(&error) => {}
        other => panic!("not poisoned: {other:?}"),
    }
}

#[test]
fn the_failing_call_gets_the_cause_and_every_later_one_poisoned() {
    let (log, disk, _) = log();
    append(&log, 5);
    let mut sink = Sink::new(&log).unwrap();
    disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg").nth(1));
    let before = log.append(payload(6)).unwrap();
    let failed = log.append(payload(7)).unwrap().blocking_wait().unwrap_err();
    let LogError::Io(cause) = failed else { panic!("{failed:?}") };
    assert_eq!((cause.op(), cause.os_code()), (Op::Write, Some(5)));
    assert!(cause.path().to_string_lossy().ends_with(".seg"), "{cause}");
    // It was in the same commit.
    assert!(matches!(before.blocking_wait(), Err(LogError::Io(_))));
    // The disk is well again; the log is not.
    for _ in 0..2 {
        poisoned(log.append(b"x"));
        poisoned(log.try_append(b"x"));
        poisoned(log.append_timeout(b"x", LONG));
        poisoned(log.write(Append::records(&[b"x"; 2])));
        poisoned(log.write(Append::records(&[b"x"; 2]).atomic()));
        poisoned(block_on(log.append_async(b"x")));
        poisoned(log.barrier());
        poisoned(sink.blocking_append(b"x"));
        poisoned(block_on(log.wait_durable(100)));
    }
    assert_eq!(log.durable(), Seq(5));
    assert!(log.close().is_err());
}

#[test]
fn durable_records_stay_readable_after_a_failure() {
    let (log, disk, _) = log();
    append(&log, 40);
    let mut stream = log.stream(Start::From(Seq(38))).unwrap();
    disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg").nth(1));
    assert!(log.append(b"x").unwrap().blocking_wait().is_err());
    assert_eq!(all(&log), payloads(1..=40));
    assert_eq!(log.read(1).unwrap().payload(), payload(1));
    // A stream gives all that is durable, and then the reason why nothing more comes.
    assert_eq!(rest(&mut stream), payloads(38..=40));
    poisoned(stream.blocking_next());
    drop(log);
}

#[test]
fn the_kind_of_the_failure_reaches_the_caller() {
    let kinds = [
        (Effect::NoSpace, ErrorKind::StorageFull, 28),
        (Effect::Os(13), ErrorKind::PermissionDenied, 13),
        (Effect::Os(30), ErrorKind::ReadOnlyFilesystem, 30),
        (Effect::Os(122), ErrorKind::QuotaExceeded, 122),
    ];
    for (effect, kind, code) in kinds {
        let (log, disk, _) = log();
        append(&log, 1);
        disk.inject(Fault::on(Op::Write, effect).path(".seg"));
        let failed = log.append(payload(2)).unwrap().blocking_wait().unwrap_err();
        let refused = log.append(payload(2)).unwrap_err();
        let (LogError::Io(failed), AppendError::Log(LogError::Poisoned(refused))) =
            (failed, refused)
        else {
            panic!("another error");
        };
        for cause in [failed, refused] {
            assert_eq!((cause.kind(), cause.os_code()), (kind, Some(code)));
        }
        drop(log);
    }
}

/// With separate syncs: the sync fails, is not tried again, and nothing it carried counts.
#[test]
fn failed_sync_is_reported_and_never_retried() {
    for policy in [Policy::Always, Policy::OsBuffered] {
        let disk = SimDisk::new(1);
        let (mut options, _) = driven(&disk);
        options.dsync = false;
        options.policy = policy;
        let log = Log::builder(DIR).options(options).open().unwrap();
        append(&log, 2);
        disk.inject(Fault::on(Op::Sync, Effect::Io).path(".seg").nth(1));
        let failed = log.append(payload(3)).unwrap().blocking_wait().unwrap_err();
        let LogError::Io(cause) = &failed else { panic!("{failed:?}") };
        assert_eq!(cause.op(), Op::Sync);
        let syncs = disk.stats().syncs;
        poisoned(log.append(b"x"));
        poisoned(log.barrier());
        poisoned(log.close());
        assert_eq!((log.durable(), disk.stats().syncs), (Seq(2), syncs), "{policy:?}");
        drop(log);
        let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Unclean);
        assert!(all(&log).starts_with(&payloads(1..=2)));
        append(&log, 1);
        log.close().unwrap();
    }
}

#[test]
fn reopen_continues_from_the_records_on_disk() {
    let (log, disk, _) = log();
    append(&log, 20);
    disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg").nth(1));
    assert!(log.append(payload(21)).unwrap().blocking_wait().is_err());
    drop(log);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    let last = log.durable().0;
    assert!((20..=21).contains(&last));
    assert_eq!(all(&log), payloads(1..=last));
    append(&log, 5);
    assert_eq!(all(&log), payloads(1..=last + 5));
    log.close().unwrap();
}

/// The commit fails on a thread of the engine, which wakes every waiter with the failure.
#[test]
fn every_waiting_caller_gets_the_failure() {
    let disk = SimDisk::new(1);
    let log = fixture::log_on(&disk, &Engine::new(1).unwrap());
    append(&log, 1);
    let gate = Gate::new();
    let _opens = fixture::Opens(disk.clone(), gate.clone());
    disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg").nth(1));
    disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg"));
    drop(log.append(payload(2)).unwrap());
    assert!(gate.wait_for(1, LONG));
    let tickets: Vec<_> = (3..=10).map(|seq| log.append(payload(seq)).unwrap()).collect();
    let mut stream = log.stream(Start::Tip).unwrap();
    let waiting = log.clone();
    in_time("waiting", move || {
        let waits: Vec<_> = tickets
            .into_iter()
            .map(|ticket| std::thread::spawn(move || ticket.blocking_wait().unwrap_err()))
            .collect();
        let reads = std::thread::spawn(move || {
            assert_eq!(stream.blocking_next().unwrap().last(), Some(Seq(2)));
            stream.blocking_next()
        });
        // All of them are parked: a thread that comes later finds the failure by itself.
        while waiting.stats().waiting < waits.len() + 1 {
            std::thread::yield_now();
        }
        gate.open();
        for wait in waits {
            let error = wait.join().unwrap();
            assert!(is_eio(&error), "{error:?}");
        }
        poisoned(reads.join().unwrap());
    });
    assert_eq!(log.durable(), Seq(2));
    assert!(log.close().is_err());
}

/// The records of the failed commit get the cause, those after it the failed one.
#[test]
fn record_after_the_failed_commit_is_poisoned() {
    let (log, disk, engine) = log();
    append(&log, 1);
    disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg").nth(1));
    // Larger than a buffer, so that each is a commit of its own.
    let first = log.append(vec![1; 9000]).unwrap();
    let second = log.append(vec![2; 9000]).unwrap();
    engine.run();
    assert!(matches!(
        first.blocking_wait_timeout(Duration::from_secs(1)),
        Err(WaitError::Log(LogError::Io(_)))
    ));
    poisoned(second.blocking_wait_timeout(Duration::from_secs(1)));
    drop(log);
}

/// Making the next segment, its name included, fails: that is a failed commit like any other.
#[test]
fn failed_rotation_is_reported() {
    for (op, path) in
        [(Op::Open, ".seg"), (Op::Size, ".seg"), (Op::SyncDir, "log"), (Op::Sync, ".seg")]
    {
        let (log, disk, _) = log();
        append(&log, 3);
        disk.inject(Fault::on(op, Effect::Io).path(path));
        let mut durable = 3;
        let failed = loop {
            match log.append(payload(durable + 1)).and_then(|ticket| Ok(ticket.blocking_wait()?)) {
                Ok(_) => durable += 1,
                Err(error) => break error,
            }
            assert!(durable < 100, "{op} never failed");
        };
        assert!(is_eio(&failed), "{failed:?}");
        assert_eq!(all(&log), payloads(1..=durable));
        disk.clear_faults();
        poisoned(log.append(b"x"));
        drop(log);
        let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        assert_eq!(all(&log), payloads(1..=durable), "{op}");
        log.close().unwrap();
    }
}
