//! Wakers of tasks that take long, and threads that wait for the same commit.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use esker_disk::sim::SimDisk;
use esker_log::{Log, Seq, Start};

use crate::fixture::{DIR, LONG, Opens, payload, small, until};

/// A waker that returns when so many threads have ended, or after [`LONG`].
struct SlowWaker {
    threads: usize,
    ended: Mutex<Receiver<()>>,
    returns: Sender<bool>,
}

impl Wake for SlowWaker {
    fn wake(self: Arc<Self>) {
        let ended = self.ended.lock().unwrap();
        let all = (0..self.threads).all(|_| ended.recv_timeout(LONG).is_ok());
        self.returns.send(all).unwrap();
    }
}

/// Guards: tasks and threads were woken in the order in which they came.
#[test]
fn threads_are_woken_before_tasks() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(small(&disk)).open().unwrap();
    let opens = Opens::block_commits(&disk, &log);
    let (end, ended) = channel();
    let (returns, returned) = channel();
    let waker = SlowWaker { threads: 2, ended: Mutex::new(ended), returns };
    let mut task = log.append(payload(2)).unwrap();
    let ticket = task.clone();
    let waker = Waker::from(Arc::new(waker));
    assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_pending());
    let mut stream = log.stream(Start::Tip).unwrap();
    let caller_ends = end.clone();
    let caller = std::thread::spawn(move || {
        ticket.blocking_wait_timeout(3 * LONG).unwrap();
        caller_ends.send(()).unwrap();
    });
    let reader = std::thread::spawn(move || {
        while stream.blocking_next_timeout(3 * LONG).unwrap().last() < Some(Seq(2)) {}
        end.send(()).unwrap();
    });
    until("all three wait", || log.stats().waiting == 3);
    drop(opens);
    assert!(returned.recv_timeout(2 * LONG).unwrap(), "a thread waits for the waker of a task");
    caller.join().unwrap();
    reader.join().unwrap();
    log.close().unwrap();
}
