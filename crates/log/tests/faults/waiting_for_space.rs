//! Appends that wait on a full disk until segments leave the log: who runs the commit that lets
//! them go, and who is woken by it.
//!
//! Guards: an engine thread that waits for a commit which only it would run; a wake that is lost;
//! a refusal before all was tried.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::{AppendError, Engine, Log, LogError, Options, Policy, Seq, Sink};

use crate::fixture::{DIR, LONG, block_on, driven, in_time, small};

const RECORD: [u8; 5000] = [7; 5000];

/// A ring of two segments on a disk with little more room.
fn ring(disk: &SimDisk, set: impl FnOnce(&mut Options)) -> Log {
    disk.set_capacity(Some(320 << 10));
    let mut options = small(disk);
    options.buffer_size = 64 << 10;
    options.buffers = 8;
    options.record_limit = 256 << 10;
    options.reserve = Some(64 << 10);
    options.retention.segments = Some(2);
    set(&mut options);
    let log = Log::builder(DIR).options(options).open().unwrap();
    for _ in 0..100 {
        log.append(RECORD).unwrap().blocking_wait().unwrap();
    }
    // Maintenance that is under way would be what an append waits for, instead of a commit.
    std::thread::sleep(Duration::from_millis(50));
    log
}

/// A ring on a full disk, and another log on a disk of its own, on one engine.
fn two_logs(threads: usize, policy: Policy) -> (SimDisk, Log, Log) {
    let engine = Engine::new(threads).unwrap();
    let (disk, other_disk) = (SimDisk::new(1), SimDisk::new(2));
    let log = ring(&disk, |options| {
        options.engine = Some(engine.clone());
        options.policy = policy;
    });
    let mut options = small(&other_disk);
    options.engine = Some(engine);
    let other = Log::builder(DIR).options(options).open().unwrap();
    (disk, log, other)
}

/// Appends without waiting until there is no room.
fn fill(log: &Log) {
    let mut refused = 0;
    while refused < 20 {
        match log.try_append(RECORD) {
            Ok(ticket) => ticket.detach(),
            Err(AppendError::Full) => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Bug: the threads of an engine waited for the commit of a caller, and the commits after it were
/// queued for these threads: all logs of the engine stopped.
#[test]
fn no_thread_of_an_engine_waits_for_a_commit() {
    in_time("two logs on an engine", || {
        for (threads, policy) in [
            (1, Policy::Always),
            (2, Policy::Always),
            (1, Policy::Batch(NonZeroU64::new(1000).unwrap())),
        ] {
            let (disk, log, other) = two_logs(threads, policy);
            let gate = Gate::new();
            disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg"));
            let committing = std::thread::spawn({
                let log = log.clone();
                move || log.append(RECORD).unwrap().blocking_wait().unwrap()
            });
            assert!(gate.wait_for(1, LONG));
            fill(&log);
            let callers: Vec<_> = (0..=threads)
                .map(|_| {
                    let log = log.clone();
                    let appended = move || log.append_timeout(RECORD, LONG).map(|t| t.detach());
                    let caller = std::thread::spawn(appended);
                    std::thread::sleep(Duration::from_millis(20));
                    caller
                })
                .collect();
            gate.open();
            disk.clear_faults();
            committing.join().unwrap();
            for caller in callers {
                caller.join().unwrap().unwrap();
            }
            block_on(log.append_async(RECORD)).unwrap().detach();
            log.barrier().unwrap().blocking_wait_timeout(LONG).unwrap();
            other.append(RECORD).unwrap().blocking_wait_timeout(LONG).unwrap();
        }
    });
}

/// Bug: the threads of an engine waited for a thread that was changing the set of segments, on a
/// disk that hung.
#[test]
fn no_thread_of_an_engine_waits_for_the_set_of_segments() {
    in_time("two logs on an engine", || {
        let policy = Policy::Batch(NonZeroU64::new(100_000).unwrap());
        let (disk, log, other) = two_logs(2, policy);
        let gate = Gate::new();
        disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path("manifest"));
        let truncating = std::thread::spawn({
            let log = log.clone();
            move || log.retention().truncate_before(Seq(log.oldest().0 + 1)).unwrap()
        });
        assert!(gate.wait_for(1, LONG));
        // Until space is wanted, and nothing can leave.
        let callers: Vec<_> = (0..60)
            .map(|_| {
                let log = log.clone();
                std::thread::spawn(move || log.append_timeout(RECORD, LONG).map(|t| t.detach()))
            })
            .collect();
        let waits = |callers: &[std::thread::JoinHandle<_>]| {
            callers.iter().filter(|caller| !caller.is_finished()).count()
        };
        std::thread::sleep(Duration::from_millis(100));
        assert!(waits(&callers) > 2, "{}", waits(&callers));
        for _ in 0..10 {
            other.append(RECORD).unwrap().blocking_wait_timeout(LONG).unwrap();
        }
        gate.open();
        disk.clear_faults();
        truncating.join().unwrap();
        for caller in callers {
            caller.join().unwrap().unwrap();
        }
        log.barrier().unwrap().blocking_wait_timeout(LONG).unwrap();
    });
}

/// A caller with a deadline leaves it to the engine to reserve space. The commit that lets a
/// segment go is that of another caller.
#[test]
fn a_request_for_space_is_tried_again_after_the_commit() {
    in_time("a request", || {
        let disk = SimDisk::new(1);
        let log = ring(&disk, |options| {
            options.policy = Policy::Batch(NonZeroU64::new(100_000).unwrap());
        });
        let in_newest =
            || log.storage().segments().last().map_or(0, |newest| newest.last.0 - newest.after.0);
        while in_newest() < 7 {
            log.append(RECORD).unwrap().blocking_wait().unwrap();
        }
        let gate = Gate::new();
        disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg"));
        // It begins the segment with which the oldest one is beyond the limit.
        let committing = std::thread::spawn({
            let log = log.clone();
            move || log.append(RECORD).unwrap().blocking_wait().unwrap()
        });
        assert!(gate.wait_for(1, LONG));
        let waiting = std::thread::spawn({
            let log = log.clone();
            move || log.append_timeout(vec![1; 60_000], LONG / 2).map(|ticket| ticket.detach())
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        gate.open();
        disk.clear_faults();
        committing.join().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

/// Bug: an append that waited on its own thread waited for the last record of the log, which others
/// had appended meanwhile and no caller had requested.
#[test]
fn an_append_on_a_full_disk_is_woken_by_the_commit_that_it_requested() {
    in_time("a blocking append", || {
        let mut waited = 0;
        for fill in 1..26 {
            let disk = SimDisk::new(1);
            let log = ring(&disk, |options| {
                options.commits_in_flight = 1;
                options.policy = Policy::Batch(NonZeroU64::new(100_000).unwrap());
            });
            let (of_manifest, of_segments) = (Gate::new(), Gate::new());
            let block = |gate: &Gate, path| {
                disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(path));
            };
            let spawn = |run: fn(Log)| {
                std::thread::spawn({
                    let log = log.clone();
                    move || run(log)
                })
            };
            // It holds the lock of the segments for a while.
            block(&of_manifest, "manifest");
            let truncating =
                spawn(|log| log.retention().truncate_before(Seq(log.oldest().0 + 1)).unwrap());
            assert!(of_manifest.wait_for(1, LONG));
            block(&of_segments, ".seg");
            let committing =
                spawn(|log| assert!(log.append("first").unwrap().blocking_wait().is_ok()));
            assert!(of_segments.wait_for(1, LONG));
            // The engine makes the next segment meanwhile, if there is room.
            let room = |_: &u32| {
                (0..10).any(|_| {
                    let appended = log.try_append(RECORD).map(|ticket| ticket.detach());
                    let wait = || std::thread::sleep(Duration::from_millis(1));
                    appended.inspect_err(|_| wait()).is_ok()
                })
            };
            let _ = (0..fill).take_while(room).count();
            let waiting = spawn(|log| log.append(vec![1; 60_000]).unwrap().detach());
            std::thread::sleep(Duration::from_millis(20));
            waited += usize::from(!waiting.is_finished());
            // Small ones may fit in the segment.
            let _ = (0..4).take_while(room).count();
            of_manifest.open();
            std::thread::sleep(Duration::from_millis(5));
            of_segments.open();
            disk.clear_faults();
            for thread in [committing, truncating, waiting] {
                thread.join().unwrap();
            }
        }
        assert!(waited > 0);
    });
}

/// Bug: one segment left the log at once, which was too little, and an append gave up although
/// others would have left after the next commit.
#[test]
fn an_append_is_refused_only_where_nothing_can_be_freed() {
    let mut waited = 0;
    for (pages, undurable) in
        (78..130).step_by(4).flat_map(|n| (0..40).step_by(4).map(move |m| (n, m)))
    {
        let disk = SimDisk::new(1);
        let (mut options, engine) = driven(&disk);
        options.buffer_size = 64 << 10;
        options.buffers = 16;
        options.record_limit = 256 << 10;
        options.reserve = Some(64 << 10);
        options.retention.segments = Some(2);
        options.policy = Policy::Batch(NonZeroU64::new(100_000).unwrap());
        disk.set_capacity(Some(pages * 4096));
        let log = Log::builder(DIR).options(options).open().unwrap();
        for _ in 0..40 {
            log.append(RECORD).unwrap().blocking_wait().unwrap();
        }
        for _ in 0..undurable {
            log.append(RECORD).unwrap().detach();
        }
        let oldest = log.oldest();
        let large = vec![1; 60_000];
        match log.append(&large) {
            Ok(ticket) => ticket.detach(),
            Err(AppendError::NoSpace { .. }) => {
                let after = log.oldest();
                let again = log.append(&large).map(|ticket| ticket.detach());
                assert!(again.is_err() && log.oldest() == after, "{pages} {undurable} {again:?}");
            }
            Err(error) => panic!("{error:?}"),
        }
        waited += usize::from(log.oldest() > oldest);
        engine.run();
        log.close().unwrap();
    }
    assert!(waited > 20, "{waited}");
}

/// A log on a disk that it fills alone, with all records truncated: the next segment comes from the
/// reserve.
fn all_truncated(disk: &SimDisk) -> (Log, Engine) {
    disk.set_capacity(Some(2 << 20));
    let (mut options, engine) = driven(disk);
    options.segment_size = 64 << 20;
    options.reserve = Some(1 << 20);
    let log = Log::builder(DIR).options(options).open().unwrap();
    while log.append(RECORD).and_then(|ticket| Ok(ticket.blocking_wait()?)).is_ok() {}
    log.retention().truncate_before(log.durable().0 + 1).unwrap();
    (log, engine)
}

/// Bug: the append got the error, and the log went on after a failed sync.
#[test]
fn an_error_of_the_disk_in_the_reserve_poisons() {
    for (op, path) in [
        (Op::Open, "reserve"),
        (Op::Size, "reserve"),
        (Op::Sync, "reserve"),
        (Op::Open, "00000000000000000002.seg"),
        (Op::Sync, "00000000000000000002.seg"),
    ] {
        let disk = SimDisk::new(1);
        let (log, _engine) = all_truncated(&disk);
        disk.inject(Fault::on(op, Effect::Io).path(path).times(1));
        let failed = log.append(vec![1; 20_000]);
        assert!(
            matches!(failed, Err(AppendError::Log(LogError::Io(_)))),
            "{op:?} {path}: {failed:?}"
        );
        disk.clear_faults();
        let poisoned = log.append(RECORD);
        assert!(
            matches!(poisoned, Err(AppendError::Log(LogError::Poisoned(_)))),
            "{op:?} {path}: {poisoned:?}"
        );
    }
}

/// Bug: `start_send` waited for a commit on the thread of an executor.
#[test]
fn a_sink_on_a_full_disk_does_not_wait_for_a_commit() {
    in_time("a sink", || {
        let disk = SimDisk::new(1);
        let log = ring(&disk, |_| {});
        let gate = Gate::new();
        disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg"));
        let mut sink = Sink::new(&log).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut sent = 0;
        // Nothing is durable, and every call returns.
        let refused = loop {
            let mut sink = Pin::new(&mut sink);
            if futures_sink::Sink::<&[u8]>::poll_ready(sink.as_mut(), &mut context).is_pending() {
                break None;
            }
            match futures_sink::Sink::<&[u8]>::start_send(sink, &RECORD) {
                Ok(()) => sent += 1,
                Err(error) => break Some(error),
            }
        };
        assert!(matches!(refused, None | Some(AppendError::Full)), "{refused:?}");
        assert!(sent > 5, "{sent}");
        gate.open();
        disk.clear_faults();
        log.append(RECORD).unwrap().blocking_wait().unwrap();
        sink.blocking_flush().unwrap();
    });
}
