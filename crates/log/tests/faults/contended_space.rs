//! Callers that need space at the same time, on a disk that is full.
//!
//! Guards: an append that is refused what another one was just given; a segment that changes after
//! its footer.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};
use esker_log::component::Purpose;
use esker_log::{AppendError, Appended, Engine, Error, Log, Options, Seq, Ticket};

use crate::fixture::{DIR, LONG, in_time, small};

const MIB: u64 = 1 << 20;
const RECORD: [u8; 5000] = [7; 5000];

/// A log that fills its disk.
fn full_log(disk: &SimDisk, capacity: u64, set: impl FnOnce(&mut Options)) -> Log {
    disk.set_capacity(Some(capacity));
    let mut options = small(disk);
    options.record_limit = 8 << 20;
    options.buffer_size = 64 << 10;
    options.buffers = 64;
    set(&mut options);
    let log = Log::builder(DIR).options(options).open().unwrap();
    while append(&log, RECORD).is_ok() {}
    log
}

fn append(log: &Log, payload: impl AsRef<[u8]>) -> Result<Appended, Error> {
    Ok(log.append(payload)?.blocking_wait()?)
}

/// Whether the segment is still a file of the log.
fn exists(disk: &SimDisk, number: u64) -> bool {
    disk.contents(&Path::new(DIR).join(format!("{number:020}.seg"))).is_ok()
}

/// A waker that only remembers that it was called.
#[derive(Default)]
struct Woken(Arc<Flag>);

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

impl Woken {
    fn poll<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.0))))
    }

    fn is_set(&self) -> bool {
        self.0.0.load(SeqCst)
    }
}

/// Waits for what another thread does.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LONG.as_millis() {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what}");
}

/// Bug: of several appends that found everything truncated, the first got the reserve, and the
/// others an error, although they fitted the segment that it had made.
#[test]
fn appends_begin_in_the_reserve_together() {
    in_time("appends beside a truncation", || {
        for round in 0..10 {
            let disk = SimDisk::new(round);
            let log = full_log(&disk, 2 * MIB, |options| {
                options.segment_size = 64 << 20;
                options.reserve = Some(MIB);
            });
            let gate = Gate::new();
            disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path("manifest"));
            std::thread::scope(|scope| {
                let truncating =
                    scope.spawn(|| log.retention().truncate_before(Seq(log.durable().0 + 1)));
                assert!(gate.wait_for(1, LONG));
                let callers: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| append(&log, vec![1; 9000]))).collect();
                // They meet the full disk, and then the truncation.
                std::thread::sleep(Duration::from_millis(50));
                gate.open();
                disk.clear_faults();
                truncating.join().unwrap().unwrap();
                for caller in callers {
                    let appended = caller.join().unwrap();
                    assert!(appended.is_ok(), "round {round}: {appended:?}");
                }
            });
        }
    });
}

/// Bug: a large append extended the segment in use, although there was a next one. A smaller one
/// went on there meanwhile, and the first segment left the log: the large one did not find it, and
/// the log was poisoned. Or it stayed, longer than its footer says.
#[test]
fn a_segment_is_not_extended_once_another_follows_it() {
    in_time("a large append and a small one", || {
        let disk = SimDisk::new(1);
        let log = full_log(&disk, 40 * MIB, |options| {
            options.segment_size = 64 << 20;
            options.reserve = Some(33 * MIB);
        });
        log.retention().truncate_before(Seq(log.durable().0 + 1)).unwrap();
        // The engine makes the next segment from the reserve, and nothing is placed there yet.
        let (mut request, woken) = (Box::pin(log.append_async([1; 9000])), Woken::default());
        assert!(woken.poll(request.as_mut()).is_pending());
        until("the next segment", || woken.is_set());
        drop(request);
        assert!(exists(&disk, 2));
        disk.set_capacity(None);
        let gate = Gate::new();
        for number in [1, 2] {
            let held = Fault::on(Op::Open, Effect::Block(gate.clone()));
            disk.inject(held.path(&format!("{number:020}.seg")).times(1));
        }
        std::thread::scope(|scope| {
            let large = scope.spawn(|| append(&log, vec![3; 4 << 20]));
            assert!(gate.wait_for(1, LONG));
            log.append([1; 9000]).unwrap().blocking_wait().unwrap();
            // The first segment leaves, unless the gate holds the thread that removes it.
            for _ in 0..200 {
                if !exists(&disk, 1) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            gate.open();
            let large = large.join().unwrap();
            assert!(large.is_ok(), "{large:?}");
        });
        disk.clear_faults();
        until("the first segment leaves", || !exists(&disk, 1));
        log.append([1; 9000]).unwrap().blocking_wait().unwrap();
    });
}

/// Bug: a request of an internal append and one of an ordinary append were one: it was refused, and
/// both callers got the error, although the reserve was whole.
#[test]
fn an_internal_request_gets_the_reserve_beside_an_ordinary_one() {
    in_time("two requests", || {
        let engine = Engine::new(1).unwrap();
        let disk = SimDisk::new(1);
        let log = full_log(&disk, MIB, |options| {
            options.engine = Some(engine.clone());
            options.reserve = Some(256 << 10);
        });
        let other_disk = SimDisk::new(2);
        let mut options = small(&other_disk);
        options.engine = Some(engine);
        let other = Log::builder(DIR).options(options).open().unwrap();
        // The only thread of the engine is held until both have made their request.
        let gate = Gate::new();
        other_disk.inject(Fault::on(Op::Write, Effect::Block(gate.clone())).path(".seg"));
        other.append("x").unwrap().detach();
        assert!(gate.wait_for(1, LONG));
        let record = [1; 6000];
        let mut internal = Box::pin(
            log.component()
                .append_locked_async(|attempt| attempt.append(Purpose::Internal, record, |_| {})),
        );
        let mut ordinary = Box::pin(log.append_async(record));
        let (woken, woken_too) = (Woken::default(), Woken::default());
        assert!(woken.poll(internal.as_mut()).is_pending());
        assert!(woken_too.poll(ordinary.as_mut()).is_pending());
        gate.open();
        other_disk.clear_faults();
        let (mut appended, mut refused) = (None, None);
        until("both answers", || {
            if appended.is_none()
                && let Poll::Ready(outcome) = woken.poll(internal.as_mut())
            {
                appended = Some(outcome);
            }
            if refused.is_none()
                && let Poll::Ready(outcome) = woken_too.poll(ordinary.as_mut())
            {
                refused = Some(outcome);
            }
            appended.is_some() && refused.is_some()
        });
        appended.unwrap().unwrap().blocking_wait().unwrap();
        assert!(matches!(refused, Some(Err(AppendError::NoSpace { .. }))), "{refused:?}");
    });
}

/// Bug: an append that does not wait got the failure of a request from before segments left the
/// log.
#[test]
fn a_failure_is_not_reported_once_segments_left() {
    in_time("an append that does not wait", || {
        let disk = SimDisk::new(1);
        let log = full_log(&disk, MIB, |options| options.reserve = Some(128 << 10));
        let record = [1; 60_000];
        until("the failure of the request", || {
            matches!(log.try_append(record).map(Ticket::detach), Err(AppendError::NoSpace { .. }))
        });
        // Its own request fails, too.
        std::thread::sleep(Duration::from_millis(50));
        log.retention().truncate_before(Seq(log.durable().0 - 5)).unwrap();
        until("room", || match log.try_append(record) {
            Ok(ticket) => ticket.blocking_wait().is_ok(),
            Err(AppendError::Full) => false,
            Err(error) => panic!("{error:?}"),
        });
    });
}
