//! A waker that closes the log, when a failure wakes it.
//!
//! Guards: a wake under a lock that closing takes.
#![allow(clippy::unwrap_used)] // The helpers of a test stop as loudly as it does.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use esker_disk::sim::{Effect, Fault, SimDisk};
use esker_disk::{Error, Op};
use esker_log::{Log, Start};
use esker_testkit::{Call, HookedDisk};

use crate::fixture::{DIR, driven, in_time, poll, small, until};

/// Closes the log that it has.
struct ClosingWaker {
    log: Mutex<Option<Log>>,
    closed: Sender<()>,
}

impl Wake for ClosingWaker {
    fn wake(self: Arc<Self>) {
        let log = self.log.lock().unwrap().take();
        drop(log.map(|log| log.close()));
        self.closed.send(()).unwrap();
    }
}

#[test]
fn a_waker_may_close_the_log_when_preallocation_failed() {
    in_time("the wake", || {
        let (closed, closes) = channel();
        let waker = Arc::new(ClosingWaker { log: Mutex::new(None), closed });
        let (armed, entered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let hook = {
            let (waker, armed, entered) =
                (Arc::clone(&waker), Arc::clone(&armed), Arc::clone(&entered));
            move |call: &Call<'_>| {
                let reserves = call.op == Op::Size && call.new_len.is_none();
                if !reserves || !armed.load(SeqCst) {
                    return Ok(());
                }
                entered.store(true, SeqCst);
                until("the waker has the log", || waker.log.lock().unwrap().is_some());
                Err(Error::new(Op::Size, call.path, None, io::Error::from_raw_os_error(5)))
            }
        };
        let disk = SimDisk::new(1);
        let mut options = small(&disk);
        options.disk = Arc::new(HookedDisk::new(Arc::new(disk), hook));
        let log = Log::builder(DIR).options(options).open().unwrap();
        log.append(b"durable").unwrap().blocking_wait().unwrap();
        let mut stream = log.stream(Start::Tip).unwrap();
        assert!(poll(&mut stream, &Waker::from(Arc::clone(&waker))).is_pending());
        armed.store(true, SeqCst);
        while !entered.load(SeqCst) {
            // Until the engine reserves space.
            drop(log.try_append([7; 1000]));
            std::thread::yield_now();
        }
        *waker.log.lock().unwrap() = Some(log);
        closes.recv().unwrap();
    });
}

/// Runs a call that fails and wakes a task, which closes the log on that thread.
fn a_task_closes_the_log(fail: impl FnOnce(&SimDisk, &Log) + Send + 'static) {
    in_time("the wake", || {
        let disk = SimDisk::new(1);
        let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        log.append(b"durable").unwrap().blocking_wait().unwrap();
        let (closed, closes) = channel();
        let waker = ClosingWaker { log: Mutex::new(Some(log.clone())), closed };
        let mut stream = log.stream(Start::Tip).unwrap();
        assert!(poll(&mut stream, &Waker::from(Arc::new(waker))).is_pending());
        fail(&disk, &log);
        closes.try_recv().unwrap();
    });
}

#[test]
fn a_waker_may_close_the_log_where_an_append_fails_to_preallocate() {
    a_task_closes_the_log(|disk, log| {
        disk.inject(Fault::on(Op::Size, Effect::Io));
        // It needs a segment of its own.
        log.append(vec![7; 200 << 10]).unwrap_err();
    });
}

#[test]
fn a_waker_may_close_the_log_where_publishing_a_snapshot_fails() {
    a_task_closes_the_log(|disk, log| {
        let writer = log.snapshots().writer(1).unwrap();
        disk.inject(Fault::on(Op::Rename, Effect::Io));
        writer.publish(b"").unwrap_err();
    });
}
