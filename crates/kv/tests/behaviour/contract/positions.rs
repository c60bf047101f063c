//! The accepted and the durable position, as other threads see them.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use esker_disk::sim::SimDisk;
use esker_kv::{Options, Policy, Seq, Store};

use crate::fixture::{DIR, SimEnv, put};

const TIME: Duration = Duration::from_millis(150);
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn the_durable_position_is_never_above_the_accepted_one() {
    let policies = [
        Policy::Always,
        Policy::Batch(NonZeroU64::new(50).unwrap()),
        Policy::Periodic(Duration::from_millis(1)),
        Policy::OsBuffered,
    ];
    for policy in policies {
        let mut options = Options::on(Arc::new(SimDisk::new(1)));
        (options.log.policy, options.log.segment_size) = (policy, 256 << 10);
        let store = Store::builder(DIR).options(options).open().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..2u32 {
                let (store, over) = (&store, &over);
                scope.spawn(move || {
                    let keys = store.keyspace();
                    for n in 0.. {
                        if over.load(SeqCst) {
                            break;
                        }
                        let key = [writer.to_be_bytes(), u32::to_be_bytes(n % 100)].concat();
                        let ticket = keys.put(key, vec![1; 200]).unwrap();
                        assert!(store.accepted() >= ticket.seq());
                        if n % 10 == 0 {
                            let seq = ticket.seq();
                            ticket.blocking_wait().unwrap();
                            assert!(store.durable() >= seq, "a ticket resolved early");
                        }
                    }
                });
            }
            let (began, mut samples) = (Instant::now(), 0);
            let mut last = (Seq(0), Seq(0));
            // A writer that gets no processor has nothing to show yet.
            let mut is_enough = false;
            while began.elapsed() < TIME || (!is_enough && began.elapsed() < PATIENCE) {
                // In this order: both only grow.
                let durable = store.durable();
                let accepted = store.accepted();
                assert!(durable <= accepted, "{policy:?}: {durable} above {accepted}");
                assert!((durable, accepted) >= last, "{policy:?}: a position went back");
                let snapshot = store.durable_snapshot().unwrap();
                assert!(snapshot.seq() >= durable && snapshot.seq() <= store.durable());
                last = (durable, accepted);
                samples += 1;
                is_enough = samples > 10 && last.0.0 > 10;
            }
            over.store(true, SeqCst);
            assert!(is_enough, "{policy:?}: {samples} samples, {last:?}");
        });
        store.close().unwrap();
    }
}

#[test]
fn the_durable_position_is_awaited_without_a_commit() {
    let sim_env = SimEnv::new();
    let store = sim_env.open();
    put(&store.keyspace(), 0..3, 1, 100);
    let operations = sim_env.disk.operations();
    let mut waits = pin!(store.wait_durable(store.accepted()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    sim_env.engine.run();
    assert!(waits.as_mut().poll(&mut context).is_pending(), "it requests no commit");
    assert_eq!(sim_env.disk.operations(), operations, "and does no I/O");
    store.sync().unwrap();
    assert!(matches!(waits.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    store.close().unwrap();
}
