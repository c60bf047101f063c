//! The value budget: reservations never exceed it, and waiters are woken when space is released.

use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use loom::sync::Arc;
use loom::thread;

use crate::value_budget::ValueBudget;

#[test]
fn no_more_is_reserved_than_there_is() {
    loom::model(|| {
        let budget = Arc::new(ValueBudget::new(200));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let budget = Arc::clone(&budget);
                thread::spawn(move || {
                    let taken = budget.reserve(150);
                    assert!(budget.used() <= 200);
                    if taken {
                        budget.release(150);
                    }
                    taken
                })
            })
            .collect();
        let taken: Vec<bool> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert!(taken.contains(&true), "one thread at least reserves space");
        assert_eq!(budget.used(), 0);
    });
}

/// Room is released while another thread waits for it in this way. Guards against a waiter that
/// checks, is missed by the thread that releases space, and sleeps forever.
fn a_release_wakes(wait: fn(&ValueBudget)) {
    loom::model(move || {
        let budget = Arc::new(ValueBudget::new(100));
        assert!(budget.reserve(100));
        let waits = {
            let budget = Arc::clone(&budget);
            thread::spawn(move || wait(&budget))
        };
        budget.release(100);
        waits.join().unwrap();
        assert_eq!(budget.used(), 100);
    });
}

#[test]
fn a_wait_for_room_is_woken() {
    a_release_wakes(|budget| {
        let deadline = Instant::now() + Duration::from_secs(3600);
        while !budget.reserve(100) {
            assert!(budget.wait(100, deadline));
        }
    });
}

/// Wakes a thread of the model.
struct Notify(loom::sync::Notify);

impl Wake for Notify {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.notify();
    }
}

/// A task registers and looks at the room in one step.
#[test]
fn a_task_that_waits_for_room_is_woken() {
    a_release_wakes(|budget| {
        let notify = std::sync::Arc::new(Notify(loom::sync::Notify::new()));
        let waker = Waker::from(std::sync::Arc::clone(&notify));
        let mut waiter = budget.waiter();
        while !budget.reserve(100) {
            if !waiter.has_room(100, &waker) {
                notify.0.wait();
            }
        }
    });
}

#[test]
fn closing_wakes_every_waiter() {
    loom::model(|| {
        let budget = Arc::new(ValueBudget::new(100));
        assert!(budget.reserve(100));
        let waits = {
            let budget = Arc::clone(&budget);
            thread::spawn(move || budget.wait(100, Instant::now() + Duration::from_secs(3600)))
        };
        budget.close();
        assert!(waits.join().unwrap());
    });
}
