//! Callers that write slots, and read some.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};

use super::Measured;
use super::store::{AHEAD, Store};
use super::values::{FULL_IN_TIME, Values};
use crate::histogram::Histogram;
use crate::job::Job;
use crate::payload::Payload;
use crate::plan::Plan;

/// Two looks at the clock cost more than a read.
const TIMED_EVERY: u64 = 16;

/// Does what was planned, closes, opens again, and compares everything.
pub fn run(job: &Job) -> Result<Measured> {
    let store = Store::open(job)?;
    // What is read has to be there; what is only written is warmed up.
    let before = if job.reads > 0 { job.count / 2 } else { job.count / 10 };
    store.put_batches(job, 0, before, AHEAD, || {})?;
    let next = AtomicU64::new(before);
    let measured = if job.batch > 1 {
        batches(job, &store, &next)?
    } else if job.writers == 1 {
        let mut caller = Caller::new(job, &store, &next);
        let begin = Instant::now();
        caller.run()?;
        Measured { ops: job.count, took: begin.elapsed(), times: caller.times }
    } else {
        together(job, &store, &next)?
    };
    store.close()?;
    let store = Store::open(job)?;
    store.compare_committed(job, 1, next.load(Relaxed))?;
    store.close()?;
    Ok(measured)
}

fn batches(job: &Job, store: &Store, next: &AtomicU64) -> Result<Measured> {
    let mut times = Histogram::new();
    let begin = Instant::now();
    let mut last = begin;
    store.put_batches(job, next.load(Relaxed), job.count, u64::from(job.batch), || {
        let now = Instant::now();
        times.add(now - last);
        last = now;
    })?;
    next.fetch_add(job.count, Relaxed);
    Ok(Measured { ops: job.count, took: last - begin, times })
}

fn together(job: &Job, store: &Store, next: &AtomicU64) -> Result<Measured> {
    let mut callers: Vec<_> = (0..job.writers).map(|_| Caller::new(job, store, next)).collect();
    let ready = Barrier::new(callers.len() + 1);
    let took = thread::scope(|scope| {
        let ready = &ready;
        let threads: Vec<_> = callers
            .iter_mut()
            .map(|caller| {
                scope.spawn(move || {
                    ready.wait();
                    caller.run()
                })
            })
            .collect();
        ready.wait();
        let begin = Instant::now();
        for thread in threads {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a caller panicked")))?;
        }
        anyhow::Ok(begin.elapsed())
    })?;
    let mut times = Histogram::new();
    for caller in &callers {
        times.merge(&caller.times);
    }
    Ok(Measured { ops: job.count * u64::from(job.writers), took, times })
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
    times: Histogram,
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
            payload: Payload::new(job, 0),
            values: Values::new(job, FULL_IN_TIME),
            times: Histogram::new(),
        }
    }

    fn run(&mut self) -> Result<()> {
        // A guard is held until the next write, as a transaction that reads has to be.
        let mut guard = None;
        for number in 0..self.count {
            let begin = number.is_multiple_of(TIMED_EVERY).then(Instant::now);
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
            if let Some(begin) = begin {
                self.times.add(begin.elapsed());
            }
        }
        Ok(())
    }
}
