//! The value budget: reservations never exceed it, and waiters are woken when space is released.

use std::time::{Duration, Instant};

use loom::sync::Arc;
use loom::thread;

use crate::value_budget::ValueBudget;

/// Requirements: FT-7.
#[test]
fn no_more_is_reserved_than_there_is() {
    loom::model(|| {
        let region = Arc::new(ValueBudget::new(200));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let region = Arc::clone(&region);
                thread::spawn(move || {
                    let taken = region.reserve(150);
                    assert!(region.used() <= 200);
                    if taken {
                        region.release(150);
                    }
                    taken
                })
            })
            .collect();
        let taken: Vec<bool> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert!(taken.contains(&true), "one thread at least reserves space");
        assert_eq!(region.used(), 0);
    });
}

/// Guards against a waiter that checks, is missed by the thread that releases space, and sleeps
/// forever.
/// Requirements: F-38.
#[test]
fn a_wait_for_room_is_woken() {
    loom::model(|| {
        let region = Arc::new(ValueBudget::new(100));
        assert!(region.reserve(100));
        let waits = {
            let region = Arc::clone(&region);
            thread::spawn(move || {
                let deadline = Instant::now() + Duration::from_secs(3600);
                while !region.reserve(100) {
                    assert!(region.wait(100, deadline));
                }
            })
        };
        region.release(100);
        waits.join().unwrap();
        assert_eq!(region.used(), 100);
    });
}

#[test]
fn closing_wakes_every_waiter() {
    loom::model(|| {
        let region = Arc::new(ValueBudget::new(100));
        assert!(region.reserve(100));
        let waits = {
            let region = Arc::clone(&region);
            thread::spawn(move || region.wait(100, Instant::now() + Duration::from_secs(3600)))
        };
        region.close();
        assert!(waits.join().unwrap());
    });
}
