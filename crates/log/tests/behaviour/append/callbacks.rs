//! Completion callbacks: called once, with the outcome, in order, by a thread of the engine.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_log::component::DeferredWakes;
use esker_log::{Appended, Log, LogError, Policy, Result, Seq, Ticket, WaitError};

use crate::fixture::{self, DIR, LONG, append, driven, in_time, log, payload, small, until};

type Outcome = Result<Appended, LogError>;
type Outcomes = (Sender<Outcome>, Receiver<Outcome>);

fn send(to: &Sender<Outcome>) -> impl FnOnce(Outcome) + Send + use<> {
    let to = to.clone();
    move |outcome| drop(to.send(outcome))
}

#[test]
fn a_callback_requests_a_commit_and_is_called_by_the_engine() {
    let (log, _, engine) = log();
    let (sender, receiver): Outcomes = channel();
    log.append(payload(1)).unwrap().on_durable(send(&sender));
    assert!(receiver.try_recv().is_err() && log.durable() == Seq(0));
    engine.run();
    assert_eq!(receiver.try_recv().unwrap().unwrap().seq, Seq(1));
    assert!(receiver.try_recv().is_err(), "once");
    // What is durable already is reported at once.
    let ticket = log.append(payload(2)).unwrap();
    ticket.clone().blocking_wait().unwrap();
    ticket.on_durable(send(&sender));
    assert_eq!(receiver.try_recv().unwrap().unwrap().seq, Seq(2));
    log.close().unwrap();
}

/// A caller's own commit makes the record durable, and the engine still calls.
#[test]
fn a_callback_runs_on_no_thread_of_a_caller() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    for seq in (1..200).step_by(2) {
        let (sender, receiver) = channel();
        let here = std::thread::current().id();
        let ticket = log.append(payload(seq)).unwrap();
        let later = log.append(payload(seq + 1)).unwrap();
        ticket.on_durable(move |outcome| {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            let at_once = std::thread::current().id() == here;
            drop(sender.send((outcome.unwrap().seq, name, at_once)));
        });
        later.blocking_wait().unwrap();
        let (called, name, at_once) = receiver.recv_timeout(LONG).unwrap();
        assert_eq!(called, Seq(seq));
        assert!(at_once || name == "esker-commit", "{name}");
    }
    log.close().unwrap();
}

#[test]
fn callbacks_of_many_threads_come_in_order_and_each_once() {
    const THREADS: u64 = 4;
    const EACH: u64 = 400;
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    let called: Arc<Mutex<Vec<u64>>> = Arc::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for n in 0..EACH {
                    let ticket = log.append(n.to_le_bytes()).unwrap();
                    let (called, log) = (Arc::clone(&called), log.clone());
                    // Those that are decided at once may be called out of order.
                    if ticket.is_durable() {
                        called.lock().unwrap().push(ticket.seq().0);
                        continue;
                    }
                    ticket.on_durable(move |outcome| {
                        let seq = outcome.unwrap().seq;
                        assert!(seq <= log.durable());
                        called.lock().unwrap().push(seq.0);
                    });
                }
            });
        }
    });
    until("all are called", || called.lock().unwrap().len() as u64 == THREADS * EACH);
    let mut called = called.lock().unwrap().clone();
    called.sort_unstable();
    assert!(called.into_iter().eq(1..=THREADS * EACH));
    log.close().unwrap();
}

#[test]
fn callbacks_run_in_the_order_of_their_records() {
    let (log, _, engine) = log();
    let (sender, receiver): Outcomes = channel();
    let tickets: Vec<_> = (1..=20).map(|seq| log.append(payload(seq)).unwrap()).collect();
    for ticket in tickets.into_iter().rev() {
        ticket.on_durable(send(&sender));
    }
    engine.run();
    let called: Vec<_> = receiver.try_iter().map(|outcome| outcome.unwrap().seq.0).collect();
    assert_eq!(called, (1..=20).collect::<Vec<_>>());
    log.close().unwrap();
}

#[test]
fn a_panic_in_a_callback_stops_neither_the_log_nor_later_ones() {
    let (log, _, engine) = log();
    let (sender, receiver): Outcomes = channel();
    log.append(payload(1)).unwrap().on_durable(|_| panic!("in a callback"));
    log.append(payload(2)).unwrap().on_durable(send(&sender));
    engine.run();
    assert_eq!(receiver.try_recv().unwrap().unwrap().seq, Seq(2));
    append(&log, 1);
    log.close().unwrap();
}

#[test]
fn a_failed_commit_a_stop_and_a_close_are_reported() {
    let (log, disk, engine) = log();
    let (sender, receiver): Outcomes = channel();
    append(&log, 1);
    disk.inject(Fault::on(Op::Write, Effect::Io).path(".seg"));
    log.append(payload(2)).unwrap().on_durable(send(&sender));
    engine.run();
    assert!(matches!(receiver.try_recv(), Ok(Err(LogError::Io(_)))));

    let disk = SimDisk::new(1);
    let (options, engine) = driven(&disk);
    let log = Log::builder(DIR).options(options).open().unwrap();
    log.append(payload(1)).unwrap().on_durable(send(&sender));
    engine.stop();
    assert!(matches!(receiver.try_recv(), Ok(Err(LogError::Stopped))));
    drop(log);

    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    options.policy = Policy::Periodic(Duration::from_secs(3600));
    let log = Log::builder(DIR).options(options).open().unwrap();
    log.append(payload(1)).unwrap().on_durable(send(&sender));
    log.close().unwrap();
    assert_eq!(receiver.recv_timeout(LONG).unwrap().unwrap().seq, Seq(1));
}

/// Guards: where the engine was stopped, a callback ran under the locks of a component that called
/// the log.
#[test]
fn a_callback_waits_for_the_locks_of_a_component() {
    let (log, _, engine) = log();
    let index = Arc::new(Mutex::new(()));
    let (sender, receiver) = channel();
    let theirs = Arc::clone(&index);
    log.append(payload(1)).unwrap().on_durable(move |outcome| {
        let is_free = theirs.try_lock().is_ok();
        sender.send((outcome, is_free)).unwrap();
    });
    let wakes = DeferredWakes::new();
    let locked = index.lock().unwrap();
    engine.stop();
    assert!(receiver.try_recv().is_err(), "it is called under the lock");
    drop(locked);
    drop(wakes);
    assert!(matches!(receiver.try_recv(), Ok((Err(LogError::Stopped), true))));
}

/// Guards: the queue of the engine was the last owner of the log, and dropped it and the callback.
#[test]
fn a_callback_of_a_closed_log_is_called_when_the_engine_stops() {
    let (log, _, engine) = log();
    let (sender, receiver): Outcomes = channel();
    log.append(payload(1)).unwrap().on_durable(send(&sender));
    drop(log);
    assert!(receiver.try_recv().is_err(), "no thread has called it");
    engine.stop();
    assert_eq!(receiver.try_recv().unwrap().unwrap().seq, Seq(1));
}

/// It may append, and the log may be dropped meanwhile.
#[test]
fn a_callback_may_use_the_log() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    let (sender, receiver): Outcomes = channel();
    let (then, again) = (send(&sender), log.clone());
    log.append(payload(1)).unwrap().on_durable(move |outcome| {
        outcome.unwrap();
        again.append(payload(2)).unwrap().on_durable(then);
    });
    drop(log);
    let second = in_time("the second", move || receiver.recv().unwrap());
    assert_eq!(second.unwrap().seq, Seq(2));
}

#[test]
fn a_detached_ticket_requests_nothing() {
    let (log, _, engine) = log();
    log.append(payload(1)).unwrap().detach();
    engine.run();
    assert_eq!(log.durable(), Seq(0));
    engine.advance(Duration::from_millis(10));
    assert_eq!(log.durable(), Seq(1), "as one that is kept and never polled");
    log.append(payload(2)).unwrap().detach();
    drop(log.append(payload(3)).unwrap());
    engine.run();
    assert_eq!(log.durable(), Seq(3), "with the next commit");
    log.close().unwrap();
}

/// Guards against a callback that cannot run yet and keeps a thread of the engine busy.
#[test]
fn a_close_that_times_out_leaves_callbacks_to_the_commit() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    let opens = fixture::Opens::block_commits(&disk, &log);
    let (sender, receiver): Outcomes = channel();
    log.append(payload(2)).unwrap().on_durable(send(&sender));
    let polls =
        Arc::new(Polls { ticket: Mutex::new(log.append(payload(3)).unwrap()), count: 0.into() });
    Arc::clone(&polls).wake();
    let closed = log.close_timeout(Duration::from_millis(20));
    assert!(matches!(closed, Err(WaitError::Timeout)), "{closed:?}");
    std::thread::sleep(Duration::from_millis(50));
    let count = polls.count.load(SeqCst);
    assert!(count < 100 && receiver.try_recv().is_err(), "woken {count} times for nothing");
    drop(opens);
    assert_eq!(receiver.recv_timeout(LONG).unwrap().unwrap().seq, Seq(2));
}

/// A task that polls its ticket whenever it is woken, and counts.
struct Polls {
    ticket: Mutex<Ticket>,
    count: AtomicUsize,
}

impl Wake for Polls {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, SeqCst);
        let waker = Waker::from(Arc::clone(&self));
        let _ = Pin::new(&mut *self.ticket.lock().unwrap()).poll(&mut Context::from_waker(&waker));
    }
}
