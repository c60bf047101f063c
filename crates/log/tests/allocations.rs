//! No heap allocation per append in the steady state, blocking or async, with a deadline or
//! without.
//!
//! Guards: a wait with a deadline that allocates.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

#[path = "kit/fixture.rs"]
mod fixture;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use esker_log::{Append, Engine, Log, Options, Seq, Start, Ticket};
use esker_testkit::CountingAllocator;
use fixture::{LONG, block_on};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// One test at a time, as there is one count for all threads.
static ALONE: Mutex<()> = Mutex::new(());

/// Allocations of this thread while it runs something.
fn allocations(run: impl FnOnce()) -> u64 {
    ALLOCATOR.of_this_thread(run)
}

/// A list inside that grows beyond what it ever held; that happens now and then, whatever the
/// number of appends. Each count below is of at least 50.
const GROWTH: u64 = 4;

const PAYLOAD: [u8; 900] = [7; 900];

/// A log on the real disk, with one thread, whose buffers have gone round already.
fn steady(dir: &tempfile::TempDir, engine: Engine) -> Log {
    let mut options = Options::default();
    options.buffer_size = 64 << 10;
    options.tail_cache = 128 << 10;
    options.engine = Some(engine);
    let log = Log::builder(dir.path().join("log")).options(options).open().unwrap();
    for _ in 0..3000 {
        drop(log.append(PAYLOAD).unwrap());
    }
    log.barrier().unwrap().blocking_wait().unwrap();
    log.append(PAYLOAD).unwrap().blocking_wait().unwrap();
    log.append(PAYLOAD).unwrap().blocking_wait_timeout(LONG).unwrap();
    block_on(log.append(PAYLOAD).unwrap()).unwrap();
    // A thread that waits for the first time makes its waker.
    let mut tip = log.stream(Start::Tip).unwrap();
    assert!(tip.blocking_next_timeout(Duration::from_millis(1)).is_err());
    drop(tip);
    log
}

fn durable(ticket: Ticket) {
    ticket.blocking_wait().unwrap();
}

/// Not one, on the thread that appends; on the engine's threads, nothing that grows with the
/// appends.
#[test]
fn an_append_allocates_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let log = steady(&dir, Engine::new(1).unwrap());
    let all = ALLOCATOR.of_all_threads();
    let counted = [
        ("blocking", allocations(|| (0..50).for_each(|_| durable(log.append(PAYLOAD).unwrap())))),
        (
            "with deadlines",
            allocations(|| {
                for _ in 0..50 {
                    let ticket = log.append_timeout(PAYLOAD, LONG).unwrap();
                    ticket.blocking_wait_timeout(LONG).unwrap();
                }
            }),
        ),
        (
            "pipelined",
            allocations(|| {
                for _ in 0..2000 {
                    drop(log.append(PAYLOAD).unwrap());
                }
                durable(log.barrier().unwrap());
            }),
        ),
        (
            "in batches",
            allocations(|| {
                for _ in 0..50 {
                    durable(log.write(Append::records(&[&PAYLOAD; 20])).unwrap());
                    durable(log.write(Append::records(&[&PAYLOAD; 20]).atomic()).unwrap());
                }
            }),
        ),
        (
            "that did not wait",
            allocations(|| {
                for _ in 0..50 {
                    drop(log.append(PAYLOAD).unwrap().blocking_wait_timeout(Duration::ZERO));
                }
                durable(log.barrier().unwrap());
            }),
        ),
    ];
    for (how, count) in counted {
        assert!(count <= GROWTH, "{count} allocations of {how} appends");
    }
    let all = ALLOCATOR.of_all_threads() - all;
    assert!(all < 100, "{all} allocations on all threads for 4150 appends");
    log.close().unwrap();
}

/// Allocations of `block_on` itself are counted first, and subtracted.
#[test]
fn an_async_append_allocates_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let log = steady(&dir, Engine::new(1).unwrap());
    let once = allocations(|| block_on(async {}));
    let counted = allocations(|| {
        block_on(async {
            for _ in 0..50 {
                log.append_async(&PAYLOAD).await.unwrap().await.unwrap();
            }
            for _ in 0..1000 {
                drop(log.append_async(&PAYLOAD).await.unwrap());
            }
            log.barrier().unwrap().await.unwrap();
            let last = log.accepted();
            log.wait_durable(last).await.unwrap();
        });
    });
    assert!(counted <= once + GROWTH, "{counted} allocations of async appends");
    log.close().unwrap();
}

/// A record at the tip is returned in place: a reader's batch costs no copy of it.
#[test]
fn a_reader_at_the_tip_copies_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let log = steady(&dir, Engine::new(1).unwrap());
    let mut stream = log.stream(Start::Tip).unwrap();
    let last = log.durable();
    let counted = allocations(|| {
        for n in 1..=50 {
            durable(log.append(PAYLOAD).unwrap());
            let batch = stream.try_next().unwrap().unwrap();
            assert_eq!(batch.last(), Some(Seq(last.0 + n)));
        }
    });
    assert!(counted <= GROWTH, "{counted} allocations for 50 batches");
    log.close().unwrap();
}
