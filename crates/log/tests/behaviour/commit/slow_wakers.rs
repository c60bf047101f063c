//! Wakers of tasks that take long, and threads that wait for the same commit.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use esker_disk::sim::SimDisk;
use esker_log::Log;

use crate::fixture::{DIR, LONG, Opens, payload, small, until};

/// A waker that returns when a thread has ended, or after [`LONG`].
struct SlowWaker {
    ended: Mutex<Receiver<()>>,
    returns: Sender<bool>,
}

impl Wake for SlowWaker {
    fn wake(self: Arc<Self>) {
        let ended = self.ended.lock().unwrap();
        self.returns.send(ended.recv_timeout(LONG).is_ok()).unwrap();
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
    let waker = SlowWaker { ended: Mutex::new(ended), returns };
    let mut task = log.append(payload(2)).unwrap();
    let ticket = task.clone();
    let waker = Waker::from(Arc::new(waker));
    assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_pending());
    let caller = std::thread::spawn(move || {
        ticket.blocking_wait_timeout(3 * LONG).unwrap();
        end.send(()).unwrap();
    });
    until("both wait", || log.stats().waiting == 2);
    drop(opens);
    assert!(returned.recv_timeout(2 * LONG).unwrap(), "a thread waits for the waker of a task");
    caller.join().unwrap();
    log.close().unwrap();
}
