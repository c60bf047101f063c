//! Wakers that call the log on the thread that wakes them.
//!
//! Guards: a wake under a lock of the log, which the waker then waits for.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use esker_consensus::{ConsensusLog, Mode, Slot, SnapshotBounds, StorageError};
use esker_disk::Op;
use esker_disk::sim::{Effect, Fault};
use esker_testkit::{Call, HookedDisk};

use crate::fixture::{HIGH, HIGHER, LOW, Setting, log_with};

const VALUE: [u8; 2 << 10] = [1; 2 << 10];

/// Calls the log when it is woken, once it is armed.
struct CallingWaker {
    log: Mutex<Option<ConsensusLog>>,
    armed: AtomicBool,
    calls: AtomicUsize,
}

impl CallingWaker {
    fn new(log: &ConsensusLog) -> Arc<Self> {
        let (log, armed) = (Mutex::new(Some(log.clone())), AtomicBool::new(false));
        Arc::new(Self { log, armed, calls: AtomicUsize::new(0) })
    }

    /// Runs the call, which must wake the task.
    fn is_woken_by(&self, setting: &Setting, call: fn(&Setting)) {
        self.armed.store(true, SeqCst);
        call(setting);
        // It is in the log that it keeps.
        self.log.lock().unwrap().take();
        assert!(self.calls.load(SeqCst) > 0, "no task is woken");
    }
}

impl Wake for CallingWaker {
    fn wake(self: Arc<Self>) {
        if !self.armed.load(SeqCst) {
            return;
        }
        let log = self.log.lock().unwrap().clone().unwrap();
        log.frontier();
        // Takes the lock of every slot, and drops none.
        drop(log.truncate_from(Slot(1 << 20)));
        self.calls.fetch_add(1, SeqCst);
    }
}

fn in_time(what: &str, run: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        run();
        done.send(()).unwrap();
    });
    match ended.recv_timeout(Duration::from_secs(60)) {
        Ok(()) => {}
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} does not end"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().unwrap_err())
        }
    }
}

/// The call releases room, or ends the wait for it, while a task waits for some.
fn wakes_a_task_that_waits_for_room(what: &str, call: fn(&Setting)) {
    in_time(what, move || {
        let s = log_with(Mode::Durable, |options| options.mutable_size = 4 << 10);
        (0..2).for_each(|slot| s.accept(slot, LOW, &VALUE));
        let waker = CallingWaker::new(&s.log);
        let mut waits = pin!(s.log.accept_async(Slot(2), LOW, b"waits for room"));
        let task = Waker::from(Arc::clone(&waker));
        assert!(waits.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
        waker.is_woken_by(&s, call);
    });
}

/// The call counts a commit that is durable, or ends the wait for one, while a task waits for the
/// frontier to move.
fn wakes_a_watch(what: &str, sync_on_commit: bool, call: fn(&Setting)) {
    in_time(what, move || {
        let s = log_with(Mode::Durable, |options| options.sync_on_commit = sync_on_commit);
        (0..2).for_each(|slot| s.accept(slot, LOW, &VALUE));
        let waker = CallingWaker::new(&s.log);
        let mut watch = s.log.watch();
        let mut moves = pin!(watch.changed());
        let task = Waker::from(Arc::clone(&waker));
        assert!(moves.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
        if sync_on_commit {
            s.commit(0, LOW);
        }
        waker.is_woken_by(&s, call);
    });
}

/// The log fails, and no call has met that yet.
fn fail_unseen(s: &Setting) {
    drop(s.log.promise(HIGH, Slot(0)).unwrap());
    s.disk.inject(Fault::on(Op::Write, Effect::Io));
    s.engine.run();
}

#[test]
fn a_waker_may_call_the_log_where_room_is_released() {
    let waits = wakes_a_task_that_waits_for_room;
    waits("commit", |s| s.commit(0, LOW));
    waits("commit_batch", |s| {
        s.log.commit_batch(&[(Slot(0), LOW)]).unwrap().ticket.blocking_wait().unwrap();
    });
    waits("commit_through", |s| s.log.commit_through(Slot(0)).unwrap().blocking_wait().unwrap());
    waits("learn", |s| s.log.learn(Slot(0), LOW, &VALUE).unwrap().blocking_wait().unwrap());
    waits("accept", |s| s.accept(0, HIGH, b"less"));
    waits("accept under a promise", |s| {
        drop(s.log.promise(HIGH, Slot(0)).unwrap().blocking_wait().unwrap());
        s.accept(0, HIGH, b"less");
    });
    waits("truncate_from", |s| s.log.truncate_from(Slot(1)).unwrap().blocking_wait().unwrap());
    waits("install", |s| {
        let bounds = SnapshotBounds { floor: Slot(0), frontier: Slot(0) };
        s.log.snapshots().install(bounds).unwrap().blocking_wait().unwrap();
    });
    waits("close", |s| s.log.close().unwrap());
}

#[test]
fn a_waker_may_call_the_log_where_a_write_failed() {
    let waits = wakes_a_task_that_waits_for_room;
    waits("promise", |s| {
        fail_unseen(s);
        s.log.promise(HIGHER, Slot(0)).unwrap_err();
    });
    waits("accept", |s| {
        fail_unseen(s);
        s.log.accept(Slot(0), HIGH, b"less").unwrap_err();
    });
    waits("commit", |s| {
        fail_unseen(s);
        s.log.commit(Slot(0), LOW).unwrap_err();
    });
    waits("truncate_from", |s| {
        fail_unseen(s);
        s.log.truncate_from(Slot(0)).unwrap_err();
    });
    waits("checkpoint", |s| {
        fail_unseen(s);
        s.log.maintenance().checkpoint().unwrap_err();
    });
}

#[test]
fn a_waker_may_call_the_log_where_the_frontier_moves() {
    wakes_a_watch("promise", true, |s| drop(s.log.promise(HIGH, Slot(0)).unwrap()));
    wakes_a_watch("commit_through", true, |s| drop(s.log.commit_through(Slot(1)).unwrap()));
    wakes_a_watch("commit_batch", false, |s| {
        drop(s.log.commit_batch(&[(Slot(0), LOW)]).unwrap());
    });
    wakes_a_watch("learn", false, |s| drop(s.log.learn(Slot(0), LOW, &VALUE).unwrap()));
    wakes_a_watch("checkpoint", true, |s| s.log.maintenance().checkpoint().unwrap());
    wakes_a_watch("close", true, |s| s.log.close().unwrap());
}

/// An append that finds no room in the staging memory may run a commit, which wakes the tasks that
/// wait for it.
#[test]
fn a_waker_may_call_the_log_where_an_accept_commits_for_others() {
    in_time("accept", || {
        let s = log_with(Mode::Durable, |options| {
            options.log.buffer_size = 8 << 10;
            options.log.buffers = 2;
        });
        let waker = CallingWaker::new(&s.log);
        let task = Waker::from(Arc::clone(&waker));
        let mut ticket = pin!(s.log.accept(Slot(0), LOW, &VALUE).unwrap());
        assert!(ticket.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
        waker.is_woken_by(&s, |s| {
            for slot in 1..20 {
                s.log.accept(Slot(slot), LOW, &VALUE).unwrap().detach();
            }
        });
    });
}

/// The engine is stopped while an accept commits for others, so their callbacks are called there.
#[test]
fn a_callback_may_call_the_log_where_the_engine_is_stopped() {
    in_time("accept", || {
        let stops = Arc::new(AtomicBool::new(false));
        let armed = Arc::clone(&stops);
        let s = log_with(Mode::Durable, |options| {
            options.log.buffer_size = 8 << 10;
            options.log.buffers = 2;
            let engine = options.log.engine.clone().unwrap();
            let hook = move |call: &Call<'_>| {
                if call.op == Op::Write && armed.swap(false, SeqCst) {
                    engine.stop();
                }
                Ok(())
            };
            options.log.disk = Arc::new(HookedDisk::new(Arc::clone(&options.log.disk), hook));
        });
        let (called, calls) = mpsc::channel();
        let log = s.log.clone();
        s.log.accept(Slot(0), LOW, &VALUE).unwrap().on_resolved(move |_| {
            // Takes the lock of every slot, and drops none.
            drop(log.truncate_from(Slot(1 << 20)));
            called.send(()).unwrap();
        });
        stops.store(true, SeqCst);
        for slot in 1..20 {
            let Ok(ticket) = s.log.accept(Slot(slot), LOW, &VALUE) else { break };
            ticket.detach();
        }
        calls.try_recv().unwrap();
    });
}

/// Makes its call when it is woken for the first time.
struct WokenOnce(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for WokenOnce {
    fn wake(self: Arc<Self>) {
        let call = self.0.lock().unwrap().take();
        call.into_iter().for_each(|call| call());
    }
}

/// Runs a call that wakes a task, and returns the outcome of the task's call.
fn outcome_of_waker<T: Send + 'static>(
    s: &Setting,
    call: fn(&ConsensusLog) -> T,
    run: impl FnOnce(),
) -> T {
    let (done, outcome) = mpsc::channel();
    let log = s.log.clone();
    let woken: Box<dyn FnOnce() + Send> = Box::new(move || done.send(call(&log)).unwrap());
    let task = Waker::from(Arc::new(WokenOnce(Mutex::new(Some(woken)))));
    let mut ticket = pin!(s.log.accept(Slot(1000), LOW, b"waits").unwrap());
    assert!(ticket.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
    run();
    outcome.try_recv().unwrap()
}

#[test]
fn a_waker_is_refused_a_checkpoint_where_its_thread_takes_one() {
    in_time("a checkpoint", || {
        let s = log_with(Mode::Durable, |_| {});
        let taken = || s.log.maintenance().checkpoint().unwrap();
        let refused = outcome_of_waker(&s, |log| log.maintenance().checkpoint(), taken);
        let is_busy = matches!(refused, Err(StorageError::Log(esker_log::Error::Busy { .. })));
        assert!(is_busy, "{refused:?}");
    });
}

/// A background job of a manual engine runs where it is scheduled.
#[test]
fn a_waker_may_make_a_checkpoint_due_where_its_thread_takes_one() {
    in_time("a checkpoint", || {
        let s = log_with(Mode::Durable, |options| options.checkpoint_every = 1024);
        let accepts = |log: &ConsensusLog| {
            let accepts = |slot| log.accept(Slot(slot), LOW, b"value").err();
            ((2000..3100).find_map(accepts), log.stats().background_failures)
        };
        let taken = || s.log.maintenance().checkpoint().unwrap();
        let outcome = outcome_of_waker(&s, accepts, taken);
        assert!(matches!(outcome, (None, 0)), "{outcome:?}");
    });
}

#[test]
fn a_waker_reclaims_nothing_where_its_thread_does() {
    in_time("reclaiming", || {
        let s = log_with(Mode::Durable, |_| {});
        for slot in 0..100 {
            s.accept(slot, LOW, &VALUE);
            s.commit(slot, LOW);
        }
        drop(s.log.truncate_before(Slot(100)).unwrap());
        let reclaim = |log: &ConsensusLog| log.maintenance().reclaim().unwrap().segments;
        let reclaimed = || assert!(reclaim(&s.log) > 0);
        assert_eq!(outcome_of_waker(&s, reclaim, reclaimed), 0);
    });
}
