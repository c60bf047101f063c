//! The preallocator is a convenience: when it fails, or hangs, or dies, nothing else does.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::{Engine, Log, Policy, PriorShutdown, Start};
use esker_testkit::{Call, HookedDisk};
use parking_lot::Mutex;

use crate::fixture::{
    DIR, LONG, Opens, all, append, driven, in_time, payload, payloads, small, until,
};

const TOO_MANY_FILES: i32 = 24;

/// The next segment cannot be made ahead, and no file can be opened for footers or zeros either.
#[test]
fn preallocator_without_a_file_descriptor_fails_nothing() {
    let disk = SimDisk::new(1);
    let (mut options, _) = driven(&disk);
    options.tail_cache = 1 << 20;
    let log = Log::builder(DIR).options(options).open().unwrap();
    disk.inject(Fault::on(Op::Open, Effect::Os(TOO_MANY_FILES)));
    append(&log, 12);
    disk.clear_faults();
    append(&log, 200);
    assert_eq!(all(&log), payloads(1..=212));
    assert!(log.storage().metadata().segments > 2);
    log.close().unwrap();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), payloads(1..=212));
    log.close().unwrap();
}

/// A log on a disk that hangs has one thread of the engine; the timers of the others continue.
#[test]
fn a_disk_that_hangs_stops_no_timer_of_another_log() {
    let hung = SimDisk::new(1);
    let engine = Engine::new(2).unwrap();
    let mut options = small(&hung);
    options.engine = Some(engine.clone());
    let stuck = Log::builder(DIR).options(options).open().unwrap();
    let gate = Gate::new();
    let _opens = Opens(hung.clone(), gate.clone());

    let disk = SimDisk::new(2);
    let mut options = small(&disk);
    options.engine = Some(engine);
    options.policy = Policy::Periodic(Duration::from_millis(20));
    let log = Log::builder("/other").options(options).open().unwrap();
    for seq in 1..=5 {
        // The thread that would have watched the timer is the one that commits.
        let kept = log.append(payload(seq)).unwrap();
        if seq == 1 {
            hung.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg").nth(1));
            drop(stuck.append(b"stuck").unwrap());
            assert!(gate.wait_for(1, LONG));
        }
        until("the timer", || log.durable().0 == seq);
        drop(kept);
    }
    log.close().unwrap();
}

/// A waker that keeps what it is given until it is woken.
struct Holds(Mutex<Option<Log>>);

impl Wake for Holds {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().take());
    }
}

#[test]
fn waker_may_drop_the_last_handle() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    let waker = Waker::from(Arc::new(Holds(Mutex::new(Some(log.clone())))));
    let mut ticket = log.append(payload(1)).unwrap();
    let poll = std::pin::Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker));
    // It was durable at once, or the engine's thread will wake it.
    drop(log);
    if poll.is_ready() {
        waker.wake();
    }
    let disk = in_time("the close", move || {
        until("the lock is free", || match Log::builder(DIR).options(small(&disk)).open() {
            Ok(log) => {
                log.storage().recovery().prior_shutdown == PriorShutdown::Clean
                    && log.durable().0 == 1
            }
            Err(_) => false,
        });
        disk
    });
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), payloads(1..=1));
    log.close().unwrap();
}

/// A disk that panics when a segment is made. The first comes under another name.
fn trap(disk: &SimDisk) -> HookedDisk {
    let hook = |call: &Call<'_>| {
        let segment = call.path.extension().is_some_and(|name| name == "seg");
        let made = call.op == Op::Open && call.how.is_some_and(|how| how.create);
        assert!(!(segment && made), "the trap snapped");
        Ok(())
    };
    HookedDisk::new(Arc::new(disk.clone()), hook)
}

/// Panics in the thread of the slow work: a caller that waits for that work does not hang.
#[test]
fn panic_in_the_preallocator_hangs_nothing() {
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    options.disk = Arc::new(trap(&disk));
    options.engine = Some(Engine::new(1).unwrap());
    let log = Log::builder(DIR).options(options).open().unwrap();
    let durable = in_time("close", move || {
        // More than half of the 16 blocks of a segment, and fewer than all.
        for seq in 1..=12 {
            let Ok(ticket) = log.append(payload(seq)) else { break };
            drop(ticket.blocking_wait());
        }
        until("the trap", || log.barrier().is_err());
        let durable = log.durable().0;
        drop(log.close());
        durable
    });
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert!(all(&log).starts_with(&payloads(1..=durable)));
    log.close().unwrap();
}

/// A batch that a reader keeps counts as the log's memory, and no longer once it is dropped.
#[test]
fn memory_that_only_a_reader_holds_is_counted() {
    let disk = SimDisk::new(1);
    let (options, _) = driven(&disk);
    let log = Log::builder(DIR).options(options).open().unwrap();
    append(&log, 1);
    let batch = log.stream(Start::Oldest).unwrap().try_next().unwrap().unwrap();
    append(&log, 100);
    let held = log.stats().memory_bytes;
    drop(batch);
    assert_eq!(held - log.stats().memory_bytes, 8 << 10);
    log.close().unwrap();
}
