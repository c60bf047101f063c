//! Calls that read the disk beside callers that need nothing from it: a page of the index where the
//! frontier moves on, and the value of a committed slot.
//!
//! Guards: a read of the disk under a lock that other callers take.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, mpsc};
use std::time::Duration;

use esker_consensus::{AcceptError, ConsensusLog, LearnError, Options, Slot};
use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Gate, SimDisk};

use crate::fixture::{DIR, HIGH, LOW};

const PAGE: u64 = 4096;

fn open(disk: &SimDisk) -> ConsensusLog {
    let options = Options::on(Arc::new(disk.clone()));
    ConsensusLog::builder(DIR).options(options).open().unwrap()
}

/// Runs `work` while no read of the disk returns, and accepts and commits beside it in the slots
/// after this one, whose page is in memory. Returns what `work` returns.
fn others_continue_beside<T: Send>(
    (disk, log, slot): (&SimDisk, &ConsensusLog, u64),
    work: impl FnOnce(&ConsensusLog) -> T + Send,
) -> T {
    let gate = Gate::new();
    disk.inject(Fault::on(Op::Read, Effect::Block(gate.clone())).path(".seg"));
    let done = std::thread::scope(|threads| {
        let work = threads.spawn(|| work(log));
        let blocked = gate.wait_for(1, Duration::from_secs(60));
        let (done, ended) = mpsc::channel();
        threads.spawn(move || {
            // One for each slot lock at least, and too few for a commit to count them.
            for slot in slot + 1..slot + 100 {
                drop(log.accept(Slot(slot), LOW, b"beside").unwrap());
            }
            for slot in slot + 1..slot + 20 {
                drop(log.commit(Slot(slot), LOW).unwrap());
            }
            done.send(()).unwrap();
        });
        let ended = ended.recv_timeout(Duration::from_secs(60));
        gate.open();
        let done = work.join().unwrap();
        assert!(blocked, "nothing is read");
        ended.expect("others wait for the read");
        done
    });
    disk.clear_faults();
    done
}

#[test]
fn no_commit_waits_for_a_page_that_the_frontier_comes_to() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    // A page without its last slot, and half of the next one.
    let slots = (0..PAGE - 1).chain(PAGE..PAGE + PAGE / 2);
    let tickets: Vec<_> = slots.map(|slot| log.learn(Slot(slot), LOW, b"value").unwrap()).collect();
    tickets.into_iter().for_each(|ticket| ticket.blocking_wait().unwrap());
    log.close().unwrap();
    let log = open(&disk);
    let beside = 3 * PAGE;
    for slot in [beside, PAGE - 1] {
        log.accept(Slot(slot), LOW, b"value").unwrap().blocking_wait().unwrap();
    }
    log.commit(Slot(PAGE - 1), LOW).unwrap().blocking_wait().unwrap();
    let frontier = others_continue_beside((&disk, &log, beside), ConsensusLog::frontier);
    assert_eq!(frontier, Some(Slot(PAGE + PAGE / 2 - 1)));
    log.close().unwrap();
}

#[test]
fn no_accept_waits_for_the_value_of_a_committed_slot() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    log.learn(Slot(0), LOW, b"value").unwrap().blocking_wait().unwrap();
    drop(log.promise(LOW, Slot(0)).unwrap().blocking_wait().unwrap());
    log.close().unwrap();
    let refused_accept = |ballot| {
        move |log: &ConsensusLog| {
            let refused = log.accept(Slot(0), ballot, b"another").unwrap_err();
            let AcceptError::AlreadyCommitted { entry } = refused else { return None };
            Some(entry.value().to_vec())
        }
    };
    let refused_learn = |log: &ConsensusLog| {
        let refused = log.learn(Slot(0), HIGH, b"another").unwrap_err();
        let LearnError::AlreadyCommitted { entry } = refused else { return None };
        Some(entry.value().to_vec())
    };
    let works: [Box<dyn Fn(&ConsensusLog) -> Option<Vec<u8>> + Send>; 3] =
        [Box::new(refused_accept(HIGH)), Box::new(refused_accept(LOW)), Box::new(refused_learn)];
    for (work, beside) in works.into_iter().zip([100, 300, 500]) {
        let log = open(&disk);
        // The page of the slot is in memory, and the value is not.
        log.accept(Slot(beside), LOW, b"value").unwrap().blocking_wait().unwrap();
        let value = others_continue_beside((&disk, &log, beside), work);
        assert_eq!(value.as_deref(), Some(&b"value"[..]));
        assert!(log.accept(Slot(0), HIGH, b"value").is_ok_and(|ticket| ticket.is_ready()));
        log.close().unwrap();
    }
}

#[test]
fn no_call_waits_for_a_page_that_another_call_reads() {
    let disk = SimDisk::new(1);
    const SLOT: Slot = Slot(PAGE);
    let log = open(&disk);
    log.learn(SLOT, LOW, b"value").unwrap().blocking_wait().unwrap();
    drop(log.promise(LOW, Slot(0)).unwrap().blocking_wait().unwrap());
    // The last checkpoint is read by opening, with what is written beside it.
    log.maintenance().checkpoint().unwrap();
    log.close().unwrap();
    let works: [fn(&ConsensusLog); 3] = [
        |log| drop(log.accept(SLOT, LOW, b"value").unwrap()),
        |log| drop(log.commit(SLOT, LOW).unwrap()),
        |log| drop(log.learn(SLOT, LOW, b"value").unwrap()),
    ];
    for (work, page) in works.into_iter().zip(3..) {
        let log = open(&disk);
        let beside = page * PAGE;
        log.accept(Slot(beside), LOW, b"value").unwrap().blocking_wait().unwrap();
        others_continue_beside((&disk, &log, beside), work);
        log.close().unwrap();
    }
}
