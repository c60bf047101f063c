//! Many threads append while power fails, on an engine with threads of its own.
//!
//! Guards the same contract where nothing is in a known order: a commit published before it is
//! durable, an append that returns an error and is there all the same, a waiter that is never
//! woken. A run is not repeatable; it says which seed the disk had.
#![allow(clippy::panic)] // What tests share fails loudly.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use esker_log::{Append, Engine, Error, Log, Policy, WaitError};
use esker_testkit::{SplitMix64, mix};

use esker_lab::log::DIR;
use esker_lab::log::config::{Config, batch, segments};
use esker_lab::log::model::Entry;
use esker_lab::log::sim_env::SimEnv;
use esker_lab::plan::Plan;

/// Longer than anything here takes: who waits longer was forgotten.
const HANG: Duration = Duration::from_secs(30);

/// Results that the threads got: payloads by number, with the batch, and the highest durable
/// number.
#[derive(Default)]
struct Reported {
    accepted: Mutex<BTreeMap<u64, (Vec<u8>, u64)>>,
    durable: AtomicU64,
}

impl Reported {
    fn accept(&self, seq: u64, payload: &[u8], group: u64) {
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.insert(seq, (payload.to_vec(), group));
    }
}

/// Appends until the log refuses.
fn append_some(log: &Log, reported: &Reported, mut rng: SplitMix64, thread: u64) {
    for n in 0..40_u64 {
        let len = if rng.percent(10) { 9000 } else { 20 + rng.index(900) };
        let payload: Vec<u8> = (0..len).map(|i| (mix(thread, n) >> (i % 57)) as u8).collect();
        let ticket = if rng.percent(20) {
            let payloads = [&payload, &payload];
            let ticket = log.write(Append::records(&payloads).atomic()).map_err(Error::from);
            if let Ok(ticket) = &ticket {
                let seq = ticket.seq().0;
                reported.accept(seq - 1, &payload, seq);
                reported.accept(seq, &payload, seq);
            }
            ticket
        } else {
            let ticket = log.append_timeout(&payload, HANG);
            if let Ok(ticket) = &ticket {
                reported.accept(ticket.seq().0, &payload, 0);
            }
            ticket.map_err(Into::into)
        };
        match ticket {
            Ok(ticket) if rng.percent(60) => match ticket.blocking_wait_timeout(HANG) {
                Ok(appended) => drop(reported.durable.fetch_max(appended.seq.0, Ordering::SeqCst)),
                Err(WaitError::Timeout) => panic!("a waiter was forgotten"),
                Err(_) => return,
            },
            Ok(ticket) => drop(ticket),
            Err(Error::Timeout) => panic!("an append was forgotten"),
            Err(_) => return,
        }
    }
}

fn life_of_threads(sim_env: &mut SimEnv, plan: Plan, rng: &mut SplitMix64) -> Result<(), String> {
    let reported = Reported::default();
    let engine = Engine::new(2).map_err(|error| error.to_string())?;
    plan.arm(&sim_env.disk);
    let opened = Log::builder(DIR)
        .options(sim_env.config.options(Arc::new(sim_env.disk.process()), &engine))
        .open();
    if let Ok(log) = &opened {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (rng, reported) = (SplitMix64::new(rng.next()), &reported);
                scope.spawn(move || append_some(log, reported, rng, thread));
            }
        });
        reported.durable.fetch_max(log.durable().0, Ordering::SeqCst);
    }
    sim_env.disk.cancel_cut();
    if sim_env.disk.is_on() {
        plan.how.strike(&sim_env.disk);
    }
    if let Ok(log) = opened {
        let start = Instant::now();
        drop(log.close_timeout(HANG));
        assert!(start.elapsed() < HANG / 2, "closing was forgotten");
    }
    engine.stop();
    sim_env.disk.power_on();
    sim_env.model.opening(sim_env.config);
    let accepted = reported.accepted.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (seq, (payload, group)) in accepted {
        let prev = sim_env.model.last();
        if seq != prev + 1 {
            return Err(format!("{seq} was accepted after {prev}"));
        }
        let payload = Arc::from(payload);
        sim_env.model.accept(Entry { seq, prev, payload, group, at: Duration::ZERO });
    }
    let durable = reported.durable.into_inner().max(sim_env.model.durable());
    sim_env.model.mark_durable(durable)?;
    let life = sim_env.open().map_err(|stop| format!("{stop:?}"))?;
    drop(life);
    Ok(())
}

/// Every record whose ticket resolved is recovered, and nothing that was refused.
#[test]
fn power_cuts_under_concurrent_appenders() {
    let retained = Config::new(Policy::Always).way((false, false)).retention(segments(2));
    let configs = [
        Config::new(Policy::Always),
        Config::new(Policy::Always).way((true, false)),
        retained,
        Config::new(batch()).way((false, false)),
        Config::new(Policy::OsBuffered),
    ];
    for seed in 0..100 {
        let config = configs[(seed % 5) as usize];
        let mut rng = SplitMix64::new(seed);
        let mut sim_env = SimEnv::new(config, seed);
        for n in 0..2 {
            let plan = Plan::within(&sim_env.disk, 160, &mut rng);
            if let Err(error) = life_of_threads(&mut sim_env, plan, &mut rng) {
                panic!("{config} seed {seed}, life {n} until {plan}: {error}");
            }
        }
        assert_eq!(sim_env.live_and_close(&[]), Ok(()), "{config} seed {seed}");
    }
}
