//! Closing, flushing and waiting while the commit in flight fails on another thread.
//!
//! Guards a lost wake-up: the failure is reported between the look at the log's state and the wait
//! for it to change, and the caller waits for ever.
#![allow(clippy::panic)] // What tests share fails loudly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault};
use esker_log::{Engine, Error, Log, Policy, WaitError};
use esker_testkit::SplitMix64;

use esker_lab::log::DIR;
use esker_lab::log::config::Config;

/// Longer than anything here takes: who waits longer was forgotten.
const HANG: Duration = Duration::from_secs(10);
/// More than there are cores, so that threads are stopped in awkward places.
const READERS: u64 = 12;
const ROUNDS: u64 = 600;

fn for_each_round(test: impl Fn(&Log, &mut SplitMix64) + Sync) {
    std::thread::scope(|scope| {
        for member in 0..READERS {
            let test = &test;
            scope.spawn(move || rounds(member, test));
        }
    });
}

fn rounds(member: u64, test: impl Fn(&Log, &mut SplitMix64)) {
    let engine = match Engine::new(1) {
        Ok(engine) => engine,
        Err(error) => panic!("{error}"),
    };
    let config = Config::new(Policy::Always).way((true, false));
    for round in 0..ROUNDS {
        let mut rng = SplitMix64::new(member * ROUNDS + round);
        let disk = config.disk(round);
        let log =
            match Log::builder(DIR).options(config.options(Arc::new(disk.clone()), &engine)).open()
            {
                Ok(log) => log,
                Err(error) => panic!("{error}"),
            };
        disk.inject(Fault::on(Op::Sync, Effect::Io).path(".seg").after(rng.below(2)));
        drop(log.append(b"committed by the engine"));
        // The engine's thread is on its way: meet it at different places.
        for _ in 0..rng.below(3000) {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        test(&log, &mut rng);
        assert!(start.elapsed() < HANG / 2, "a waiter was forgotten");
    }
}

#[test]
fn close_returns_while_the_commit_fails() {
    for_each_round(|log, _| {
        let closed = log.close_timeout(HANG);
        assert!(!matches!(closed, Err(WaitError::Timeout)), "{closed:?}");
    });
}

#[test]
fn waits_return_while_the_commit_fails() {
    for_each_round(|log, rng| {
        let ticket = match rng.percent(50) {
            true => log.barrier().map_err(Error::from),
            false => log.append(b"another").map_err(Error::from),
        };
        let waited = ticket.and_then(|ticket| Ok(ticket.blocking_wait_timeout(HANG)?));
        assert!(!matches!(waited, Err(Error::Timeout)), "{waited:?}");
    });
}
