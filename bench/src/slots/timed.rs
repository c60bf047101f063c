//! Callers that write slots, and read some.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context, Result};
use esker_bench::load::threads;
use esker_bench::measure::call_clock::{CallClock, TIMED_EVERY};
use esker_bench::measure::latency::Latencies;
use esker_bench::records::payload::Payload;

use super::slot_store::{BATCHES_AHEAD, Store};
use super::values::{FULL_IN_TIME, Values};
use crate::job::Job;
use crate::job_result::TimedPart;
use crate::plan::Plan;

/// Does what was planned, closes, opens again, and compares everything.
pub fn run(job: &Job) -> Result<TimedPart> {
    let store = Store::open(job)?;
    // What is read has to be there; what is only written is warmed up.
    let before = if job.reads > 0 { job.count / 2 } else { job.count / 10 };
    store.put_batches(job, 0, before, BATCHES_AHEAD, || {})?;
    let next = AtomicU64::new(before);
    let measured = if job.batch > 1 {
        batches(job, &store, &next)?
    } else if job.writers == 1 {
        let mut caller = Caller::new(job, &store, &next);
        let begin = Instant::now();
        caller.run()?;
        TimedPart { ops: job.count, took: begin.elapsed(), times: caller.times }
    } else {
        together(job, &store, &next)?
    };
    store.close()?;
    let store = Store::open(job)?;
    store.compare_committed(job, 1, next.load(Relaxed))?;
    store.close()?;
    Ok(measured)
}

fn batches(job: &Job, store: &Store, next: &AtomicU64) -> Result<TimedPart> {
    let mut times = Latencies::new();
    let begin = Instant::now();
    let mut clock = CallClock::start(1);
    store.put_batches(job, next.load(Relaxed), job.count, u64::from(job.batch), || {
        clock.end_call(|time| times.add(time));
    })?;
    let took = begin.elapsed();
    next.fetch_add(job.count, Relaxed);
    Ok(TimedPart { ops: job.count, took, times })
}

fn together(job: &Job, store: &Store, next: &AtomicU64) -> Result<TimedPart> {
    let mut callers: Vec<_> = (0..job.writers).map(|_| Caller::new(job, store, next)).collect();
    let work = |caller: &mut Caller<'_>, (), _| caller.run();
    let (start, ended) = threads::run(&mut callers, |_| (), work).context("start a thread")?;
    let took = start.begin.elapsed();
    ended.into_iter().collect::<Result<()>>()?;
    let mut times = Latencies::new();
    for caller in &callers {
        times.merge(&caller.times);
    }
    Ok(TimedPart { ops: job.count * u64::from(job.writers), took, times })
}

/// One of them.
struct Caller<'a> {
    store: &'a Store,
    next: &'a AtomicU64,
    plan: Plan,
    count: u64,
    /// The slots in the order that they are written in; none where each takes the next one.
    order: Option<Vec<u64>>,
    payload: Payload,
    values: Values,
    times: Latencies,
}

impl<'a> Caller<'a> {
    fn new(job: &Job, store: &'a Store, next: &'a AtomicU64) -> Self {
        let (plan, base) = (Plan::new(job), next.load(Relaxed));
        let order =
            || plan.shuffled(job.count).into_iter().map(|slot| base + slot).collect::<Vec<_>>();
        Self {
            store,
            next,
            plan,
            count: job.count,
            order: job.random.then(order),
            payload: job.payload(0),
            values: Values::new(job, FULL_IN_TIME),
            times: Latencies::new(),
        }
    }

    fn run(&mut self) -> Result<()> {
        // A guard is held until the next write, as a transaction that reads has to be.
        let mut guard = None;
        let mut clock = CallClock::start(TIMED_EVERY);
        for number in 0..self.count {
            if self.plan.is_read(number) {
                let slot = self.plan.pick(number, self.next.load(Relaxed));
                let guard = guard.get_or_insert_with(|| self.store.pin());
                self.store.get(slot, guard, &mut self.values)?;
            } else {
                guard = None;
                let next = self.next.fetch_add(1, Relaxed);
                let slot = self.order.as_ref().map_or(next, |order| order[number as usize]);
                self.store.put(slot, self.payload.record(slot))?;
            }
            clock.end_call(|time| self.times.add(time));
        }
        Ok(())
    }
}
