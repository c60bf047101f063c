//! Measures the stall of a caller during a checkpoint of many changed slots.
//!
//! ```text
//! cargo run --release -p esker-consensus --example checkpoint_stall -- DIR [SLOTS]
//! ```
//!
//! Fills SLOTS slots (5,000,000), then calls `accept` in a loop, first alone and then beside one
//! checkpoint of all of them, and prints the longest calls. A second thread waits for each of its
//! accepts. What is left in DIR is a consensus log of some 500 MB.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use esker_consensus::{Ballot, ConsensusLog, Options, Slot};

const BALLOT: Ballot = Ballot { number: 1, node: 1 };
const BATCH_SLOTS: u64 = 10_000;

/// The calls of one caller: their number, the longest, and how many took more than 1 ms.
#[derive(Debug, Default)]
struct Calls {
    count: u64,
    longest: Duration,
    slow: u64,
}

impl Calls {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = call();
        let took = begin.elapsed();
        self.count += 1;
        self.slow += u64::from(took > Duration::from_millis(1));
        self.longest = self.longest.max(took);
        done
    }
}

/// Calls `accept` until it is over, about 100,000 times a second; commits now and then, untimed.
fn accept(log: &ConsensusLog, mut slot: u64, wait: bool, over: &AtomicBool) -> (Calls, u64) {
    let (mut calls, mut tickets) = (Calls::default(), Vec::new());
    while !over.load(SeqCst) {
        let ticket = calls.time(|| {
            let ticket = log.accept(Slot(slot), BALLOT, b"a value.").unwrap();
            if wait { ticket.blocking_wait().map(|()| None) } else { Ok(Some(ticket)) }
        });
        tickets.extend(ticket.unwrap());
        slot += 1;
        if !wait {
            std::thread::sleep(Duration::from_micros(if slot.is_multiple_of(64) {
                100
            } else {
                0
            }));
        }
        if tickets.len() as u64 == BATCH_SLOTS {
            tickets.pop().unwrap().blocking_wait().unwrap();
            tickets.clear();
        }
    }
    (calls, slot)
}

fn run(log: &ConsensusLog, what: &str, slot: u64, work: impl FnOnce()) -> u64 {
    let over = AtomicBool::new(false);
    let next = std::thread::scope(|threads| {
        let calls = threads.spawn(|| accept(log, slot, false, &over));
        let waits = threads.spawn(|| accept(log, slot + (1 << 28), true, &over));
        let begin = Instant::now();
        work();
        let took = begin.elapsed();
        over.store(true, SeqCst);
        let ((calls, next), (waits, _)) = (calls.join().unwrap(), waits.join().unwrap());
        println!("{what}: {took:.1?}");
        println!("  accept:        {calls:?}");
        println!("  accept + wait: {waits:?}");
        next
    });
    log.commit_through(Slot(next - 1)).unwrap().blocking_wait().unwrap();
    next
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().unwrap();
    let slots = arguments.next().map_or(5_000_000, |text| text.parse().unwrap());
    let mut options = Options::default();
    options.mutable_size = 256 << 20;
    options.checkpoint_every = u64::MAX;
    let log = ConsensusLog::builder(dir).options(options).open().unwrap();
    let mut tickets = Vec::new();
    for first in (0..slots).step_by(BATCH_SLOTS as usize) {
        for slot in first..slots.min(first + BATCH_SLOTS) {
            tickets.push(log.accept(Slot(slot), BALLOT, b"a value.").unwrap());
        }
        log.commit_through(Slot(slots.min(first + BATCH_SLOTS) - 1))
            .unwrap()
            .blocking_wait()
            .unwrap();
        tickets.clear();
    }
    println!("{slots} slots, {} pages", log.stats().pages);
    let slot = run(&log, "alone", slots, || std::thread::sleep(Duration::from_secs(1)));
    run(&log, "beside a checkpoint", slot, || log.maintenance().checkpoint().unwrap());
}
