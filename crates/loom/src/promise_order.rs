//! Slot locks: every decision about a slot uses the current promise, whichever slot it is. Guards
//! against an accept recorded after a promise of a higher ballot, and against a deadlock of two
//! promises.

use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::ballot::Ballot;
use crate::slot_locks::SlotLocks;

const LOW: Ballot = Ballot { number: 1, node: 1 };
const HIGH: Ballot = Ballot { number: 2, node: 1 };

/// The ballots of promise and accept records, in log order.
type Log = Mutex<Vec<Ballot>>;

fn accept(shared: &(SlotLocks<2>, Log), slot: u64, ballot: Ballot) {
    let promise_state = shared.0.lock_slot(slot);
    if ballot >= promise_state.promise && !promise_state.closed {
        shared.1.lock().unwrap().push(ballot);
    }
}

fn promise(shared: &(SlotLocks<2>, Log), ballot: Ballot) {
    let mut locks = shared.0.lock_all();
    if ballot >= locks.promise_state().promise {
        shared.1.lock().unwrap().push(ballot);
        locks.promise(ballot, true);
    }
}

#[test]
fn no_lower_accept_is_recorded_after_a_promise() {
    loom::model(|| {
        let shared: Arc<(SlotLocks<2>, Log)> = Arc::new((SlotLocks::new(), Log::default()));
        let accepts = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                accept(&shared, 0, LOW);
                accept(&shared, 1, LOW);
            })
        };
        promise(&shared, HIGH);
        assert_eq!(shared.0.promised(), Some(HIGH));
        accepts.join().unwrap();
        let log = shared.1.lock().unwrap();
        assert!(log.is_sorted(), "ballots go back");
    });
}

#[test]
fn two_promises_do_not_deadlock() {
    loom::model(|| {
        let shared: Arc<(SlotLocks<2>, Log)> = Arc::new((SlotLocks::new(), Log::default()));
        let promises = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || promise(&shared, LOW))
        };
        promise(&shared, HIGH);
        promises.join().unwrap();
        shared.0.lock_all().close();
        accept(&shared, 1, HIGH);
        let log = shared.1.lock().unwrap();
        assert!(log.is_sorted() && *log.last().unwrap() == HIGH);
        assert!(log.iter().filter(|ballot| **ballot == HIGH).count() == 1, "closed");
    });
}
