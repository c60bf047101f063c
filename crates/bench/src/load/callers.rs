//! The concurrent callers of a benchmark, as async tasks or as threads.
//!
//! Callers run in slices, so that the floor can be sampled between them. A slice starts when all
//! callers are ready, and ends after the last call returned and a barrier resolved: all of that is
//! timed. The loops do not allocate, so that every counted allocation is the engine's.

use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

use esker_log::{Log, Result, Ticket};
use tokio::runtime::{Builder, Runtime};

use crate::measure::latency::Latencies;
use crate::measure::per_thread::PerThread;
use crate::measure::resources::{self, Snapshot, Used};
use crate::records::payload::{Payload, Recipe};
use esker_command::exit::{Failure, Outcome};

/// Pipelined callers record the latency of one in this many calls: reading the clock costs as much
/// as a call.
pub const TIMED_EVERY: u64 = 16;
/// Pipelined async callers yield after this many calls. A yield wakes another worker, which costs
/// as much as some 50 calls.
const YIELD_EVERY: u64 = 1024;
/// Threads that run the async callers.
pub const WORKERS: usize = 2;
const STACK: usize = 256 << 10;

/// How the callers work.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub writers: u32,
    pub batch: u32,
    pub blocking: bool,
    pub pipelined: bool,
    /// The pause between the calls of a caller.
    pub delay: Duration,
}

/// When a slice ends.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    Elapsed(Duration),
    /// Records of one caller.
    Records(u64),
}

/// The result of a slice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slice {
    pub ops: u64,
    pub bytes: u64,
    pub time: Duration,
    pub used: Used,
}

/// All callers, between slices.
#[derive(Debug)]
pub struct Callers {
    log: Log,
    work: Work,
    callers: Vec<Caller>,
    latencies: PerThread,
    runtime: Option<Runtime>,
}

impl Callers {
    /// Creates the callers, not started.
    pub fn new(log: &Log, work: Work, recipe: &Recipe) -> Outcome<Self> {
        let callers = (0..work.writers).map(|writer| Caller::new(recipe, writer, work)).collect();
        let threads = if work.blocking { work.writers as usize } else { WORKERS };
        let latencies = PerThread::new(threads);
        let per_thread = latencies.clone();
        let runtime = (!work.blocking)
            .then(|| {
                let mut builder = Builder::new_multi_thread();
                builder.enable_time().worker_threads(WORKERS);
                builder.on_thread_start(move || per_thread.enter()).build()
            })
            .transpose()
            .map_err(|error| Failure::of_io("start threads", &error))?;
        Ok(Self { log: log.clone(), work, callers, latencies, runtime })
    }

    /// Runs one slice.
    pub fn run(&mut self, until: Until) -> Result<Slice> {
        let before = self.totals();
        resources::reset_peak();
        let (begin, snapshot) =
            if self.work.blocking { self.run_threads(until)? } else { self.run_tasks(until)? };
        self.log.barrier()?.blocking_wait()?;
        let time = begin.elapsed();
        let used = Used { resident: resources::peak(), ..snapshot.used() };
        let after = self.totals();
        Ok(Slice { ops: after.0 - before.0, bytes: after.1 - before.1, time, used })
    }

    /// Returns how many records each caller appended so far.
    pub fn counts(&self) -> Vec<u64> {
        self.callers.iter().map(|caller| caller.count).collect()
    }

    /// Returns the latencies of all callers since the last call.
    pub fn take_latencies(&mut self) -> Latencies {
        self.latencies.take()
    }

    fn totals(&self) -> (u64, u64) {
        self.callers.iter().fold((0, 0), |(ops, bytes), c| (ops + c.count, bytes + c.bytes))
    }

    fn run_tasks(&mut self, until: Until) -> Result<(Instant, Snapshot)> {
        let Some(runtime) = &self.runtime else { unreachable!("async callers have a runtime") };
        let slice = Arc::new(SliceLimits::new(until));
        let parties = self.callers.len() + 1;
        let ready = Arc::new(tokio::sync::Barrier::new(parties));
        let go = Arc::new(tokio::sync::Barrier::new(parties));
        let mut tasks = Vec::with_capacity(self.callers.len());
        for mut caller in self.callers.drain(..) {
            let (log, slice) = (self.log.clone(), Arc::clone(&slice));
            let latencies = self.latencies.clone();
            let (ready, go) = (Arc::clone(&ready), Arc::clone(&go));
            tasks.push(runtime.spawn(async move {
                ready.wait().await;
                go.wait().await;
                let outcome = caller.work_async(&log, &slice, &latencies).await;
                (caller, outcome)
            }));
        }
        runtime.block_on(async {
            ready.wait().await;
            let started = (slice.begin(), Snapshot::now());
            go.wait().await;
            let mut outcome = Ok(started);
            for task in tasks {
                match task.await {
                    Ok((caller, ended)) => {
                        self.callers.push(caller);
                        outcome = ended.and(outcome);
                    }
                    Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                }
            }
            outcome
        })
    }

    fn run_threads(&mut self, until: Until) -> Result<(Instant, Snapshot)> {
        let slice = SliceLimits::new(until);
        let parties = self.callers.len() + 1;
        let (ready, go) = (Barrier::new(parties), Barrier::new(parties));
        let (log, latencies) = (&self.log, &self.latencies);
        std::thread::scope(|scope| {
            let mut threads = Vec::with_capacity(self.callers.len());
            for caller in &mut self.callers {
                let (slice, ready, go) = (&slice, &ready, &go);
                let thread = std::thread::Builder::new().stack_size(STACK);
                let spawned = thread.spawn_scoped(scope, move || {
                    latencies.enter();
                    ready.wait();
                    go.wait();
                    caller.work(log, slice, latencies)
                });
                match spawned {
                    Ok(thread) => threads.push(thread),
                    // The started threads would wait forever for this one.
                    Err(error) => {
                        esker_command::exit::complain(&format!(
                            "start a thread: {error}; use fewer --writers"
                        ));
                        std::process::exit(esker_command::exit::Status::Failed as i32);
                    }
                }
            }
            ready.wait();
            let started = (slice.begin(), Snapshot::now());
            go.wait();
            let mut outcome = Ok(started);
            for thread in threads {
                match thread.join() {
                    Ok(ended) => outcome = ended.and(outcome),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            outcome
        })
    }
}

/// When a slice began and when it ends, set once all callers are ready.
#[derive(Debug)]
struct SliceLimits {
    until: Until,
    begin: OnceLock<Instant>,
}

impl SliceLimits {
    fn new(until: Until) -> Self {
        Self { until, begin: OnceLock::new() }
    }

    fn begin(&self) -> Instant {
        *self.begin.get_or_init(Instant::now)
    }

    fn limits(&self) -> (u64, Option<Instant>) {
        match self.until {
            Until::Elapsed(time) => (u64::MAX, self.begin().checked_add(time)),
            Until::Records(records) => (records, None),
        }
    }
}

/// One caller: its records and totals.
#[derive(Debug)]
struct Caller {
    work: Work,
    /// One payload per record of a call.
    payloads: Vec<Payload>,
    count: u64,
    bytes: u64,
    slices: Vec<&'static [u8]>,
}

impl Caller {
    fn new(recipe: &Recipe, writer: u32, work: Work) -> Self {
        Self {
            work,
            payloads: (0..work.batch).map(|_| recipe.of(writer)).collect(),
            count: 0,
            bytes: 0,
            slices: Vec::with_capacity(work.batch as usize),
        }
    }

    async fn work_async(
        &mut self,
        log: &Log,
        slice: &SliceLimits,
        latencies: &PerThread,
    ) -> Result<()> {
        let (limit, deadline) = slice.limits();
        let mut clock = Clock::new(self.work.pipelined, deadline);
        let end = self.count.saturating_add(limit);
        while self.count < end {
            let ticket = if self.payloads.len() == 1 {
                let record = self.payloads[0].record(self.count);
                self.count += 1;
                self.bytes += record.len() as u64;
                log.append_async(record).await?
            } else {
                self.append_several_async(log, end).await?
            };
            if !self.work.pipelined {
                ticket.await?;
            } else if clock.calls % YIELD_EVERY == YIELD_EVERY - 1 {
                drop(ticket);
                tokio::task::yield_now().await;
            }
            if clock.is_over(latencies) {
                break;
            }
            if !self.work.delay.is_zero() {
                tokio::time::sleep(self.work.delay).await;
                clock.last = Instant::now();
            }
        }
        Ok(())
    }

    fn work(&mut self, log: &Log, slice: &SliceLimits, latencies: &PerThread) -> Result<()> {
        let (limit, deadline) = slice.limits();
        let mut clock = Clock::new(self.work.pipelined, deadline);
        let end = self.count.saturating_add(limit);
        while self.count < end {
            let ticket = if self.payloads.len() == 1 {
                let record = self.payloads[0].record(self.count);
                self.count += 1;
                self.bytes += record.len() as u64;
                log.append(record)?
            } else {
                self.append_several(log, end)?
            };
            if !self.work.pipelined {
                ticket.blocking_wait()?;
            }
            if clock.is_over(latencies) {
                break;
            }
            if !self.work.delay.is_zero() {
                std::thread::sleep(self.work.delay);
                clock.last = Instant::now();
            }
        }
        Ok(())
    }

    fn append_several(&mut self, log: &Log, end: u64) -> Result<Ticket> {
        let records = self.next_several(end);
        let appended = log.append_batch(&records);
        let slices = reuse(records);
        self.slices = slices;
        appended
    }

    async fn append_several_async(&mut self, log: &Log, end: u64) -> Result<Ticket> {
        let records = self.next_several(end);
        let appended = log.append_batch_async(&records).await;
        let slices = reuse(records);
        self.slices = slices;
        appended
    }

    fn next_several(&mut self, end: u64) -> Vec<&[u8]> {
        let mut records = reuse(std::mem::take(&mut self.slices));
        for payload in self.payloads.iter_mut().take((end - self.count) as usize) {
            let record = payload.record(self.count);
            self.count += 1;
            self.bytes += record.len() as u64;
            records.push(record);
        }
        records
    }
}

/// Clears a list of slices and reuses its memory with another lifetime. (Collecting an emptied
/// vector keeps its allocation.)
pub(super) fn reuse<'a>(mut slices: Vec<&[u8]>) -> Vec<&'a [u8]> {
    slices.clear();
    slices.into_iter().map(|_| -> &'a [u8] { &[] }).collect()
}

/// Times consecutive calls with one read of the clock each: a call begins when the previous one
/// ended.
struct Clock {
    every: u64,
    calls: u64,
    last: Instant,
    deadline: Option<Instant>,
}

impl Clock {
    fn new(sampled: bool, deadline: Option<Instant>) -> Self {
        let every = if sampled { TIMED_EVERY } else { 1 };
        Self { every, calls: 0, last: Instant::now(), deadline }
    }

    /// Records the end of a call. Returns whether it was the last. Where only some calls are timed,
    /// the clock is read at the start of such a call as well.
    fn is_over(&mut self, latencies: &PerThread) -> bool {
        self.calls += 1;
        let phase = self.calls % self.every;
        if phase == 0 {
            let now = Instant::now();
            latencies.add(now - self.last);
            self.last = now;
            return self.deadline.is_some_and(|deadline| now >= deadline);
        }
        if phase == self.every - 1 {
            self.last = Instant::now();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuse_keeps_the_allocation() {
        let one = vec![1u8];
        let mut slices: Vec<&[u8]> = Vec::with_capacity(100);
        slices.push(&one);
        let memory = slices.as_ptr();
        let again = reuse(slices);
        assert!(again.is_empty() && again.capacity() == 100);
        assert_eq!(again.as_ptr().cast::<u8>(), memory.cast::<u8>());
    }
}
