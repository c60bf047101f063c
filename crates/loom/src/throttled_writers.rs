//! The throttle of a store's writers. Guards against a writer that finds the gate closed, is missed
//! by the thread that opens it, and waits forever.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use loom::sync::Arc;
use loom::thread;

use crate::sync::{AtomicBool, Ordering::SeqCst};
use crate::throttle::Throttle;

/// A timeout after which no caller opens the gate itself.
const LONG_TIMEOUT: Duration = Duration::from_secs(3600);

fn closed() -> Arc<Throttle> {
    let throttle = Arc::new(Throttle::default());
    assert!(throttle.consider(1 << 20, || true, || true));
    throttle
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread. Polls it `again` while it is pending, as a task does that waits
/// for something else, too.
fn block_on(future: impl Future<Output = ()>, again: bool) {
    let mut future = pin!(future);
    let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    while future.as_mut().poll(&mut cx).is_pending() {
        if again && future.as_mut().poll(&mut cx).is_ready() {
            return;
        }
        thread::park();
    }
}

#[test]
fn a_caller_that_blocks_is_woken() {
    loom::model(|| {
        let throttle = closed();
        let waits = {
            let throttle = Arc::clone(&throttle);
            thread::spawn(move || throttle.blocking_wait_at_most(LONG_TIMEOUT))
        };
        throttle.open();
        waits.join().unwrap();
        assert!(!throttle.is_closed());
    });
}

#[test]
fn a_future_that_waits_is_woken() {
    for again in [false, true] {
        loom::model(move || {
            let throttle = closed();
            let waits = {
                let throttle = Arc::clone(&throttle);
                thread::spawn(move || block_on(throttle.wait(), again))
            };
            throttle.open();
            waits.join().unwrap();
            assert!(!throttle.is_closed());
        });
    }
}

/// The gate closes again while the wakers of its first closing are woken.
#[test]
fn a_future_waits_for_a_gate_that_closes_again() {
    loom::model(|| {
        let throttle = closed();
        let waits = {
            let throttle = Arc::clone(&throttle);
            thread::spawn(move || block_on(throttle.wait(), false))
        };
        throttle.open();
        throttle.consider(2 << 20, || true, || true);
        throttle.open();
        waits.join().unwrap();
        assert!(!throttle.is_closed());
    });
}

/// Cleaning ends while a writer closes the gate. In the store, both accesses to its request are
/// sequentially consistent. loom does not model that for loads, so the writer's one is an update
/// here: it has the last value.
#[test]
fn a_gate_that_no_pass_would_open_does_not_stay_closed() {
    loom::model(|| {
        let throttle = Arc::new(Throttle::default());
        let running = Arc::new(AtomicBool::new(true));
        let cleans = {
            let (throttle, running) = (Arc::clone(&throttle), Arc::clone(&running));
            thread::spawn(move || {
                running.swap(false, SeqCst);
                throttle.open();
            })
        };
        throttle.consider(1 << 20, || true, || running.fetch_and(true, SeqCst));
        cleans.join().unwrap();
        assert!(!throttle.is_closed());
    });
}
