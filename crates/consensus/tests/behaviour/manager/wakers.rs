//! Wakers that call the manager on the thread that wakes them.
//!
//! Guards: a wake while a log is opened or closed, or while none may be, which the waker then waits
//! for.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use esker_consensus::{LogManager, Mode, Slot, Ticket};
use esker_disk::sim::SimDisk;

use crate::fixture::{HIGH, LOW};
use crate::manager::{DIR, Managed, manager, options};

/// Gets the log of a key when it is woken for the first time.
struct GettingWaker {
    manager: Mutex<Option<LogManager>>,
    key: &'static str,
    got: mpsc::Sender<bool>,
}

impl Wake for GettingWaker {
    fn wake(self: Arc<Self>) {
        let manager = self.manager.lock().unwrap().take();
        manager.into_iter().for_each(|manager| {
            self.got.send(manager.get(self.key).is_ok()).unwrap();
        });
    }
}

/// Runs a call of a manager that wakes the task that waits for `future`, which gets the log of a
/// key.
fn gets_in_time<F: Future + 'static>(
    make: impl FnOnce() -> (Managed, F) + Send + 'static,
    key: &'static str,
    call: fn(&LogManager),
) {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let (managed, future) = make();
        let (got, gets) = mpsc::channel();
        let manager = Mutex::new(Some(managed.manager.clone()));
        let task = Waker::from(Arc::new(GettingWaker { manager, key, got }));
        let mut future = pin!(future);
        assert!(future.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
        call(&managed.manager);
        assert!(gets.try_recv().unwrap());
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(60)).unwrap();
}

/// A manager of one log at a time, and the ticket of an accept in the log of "a".
fn with_accept() -> (Managed, Ticket) {
    let managed = manager(1);
    let ticket = managed.manager.get("a").unwrap().accept(Slot(0), LOW, b"value").unwrap();
    (managed, ticket)
}

#[test]
fn a_waker_may_get_a_log_that_is_closed_to_make_room() {
    gets_in_time(with_accept, "a", |manager| drop(manager.get("b").unwrap()));
}

#[test]
fn a_waker_may_get_a_log_that_is_closed() {
    gets_in_time(with_accept, "a", |manager| assert!(manager.close("a").unwrap()));
}

#[test]
fn a_waker_may_get_a_log_that_is_removed() {
    gets_in_time(with_accept, "a", |manager| assert!(manager.remove("a").unwrap()));
}

#[test]
fn a_waker_may_get_a_log_where_a_backup_looks_for_its_moment() {
    let make = || {
        let disk = SimDisk::new(1);
        let (mut options, engine) = options(&disk);
        options.mode = Mode::Volatile;
        (options.log.buffer_size, options.log.buffers) = (8 << 10, 2);
        let manager = LogManager::builder(DIR).options(options).open().unwrap();
        let log = manager.get("a").unwrap();
        for slot in 0..30 {
            drop(log.accept(Slot(slot), LOW, &[1; 2 << 10]).unwrap());
        }
        // Saving these values for the backup commits it.
        let promise = log.promise(HIGH, Slot(0)).unwrap();
        (Managed { manager, disk, engine }, promise)
    };
    gets_in_time(make, "b", |manager| drop(manager.backup("/copy").unwrap()));
}
