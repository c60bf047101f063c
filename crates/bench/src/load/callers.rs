//! The concurrent callers of a benchmark, as async tasks or as threads.
//!
//! Callers run in slices, so that the floor can be sampled between them. A slice starts when all
//! callers are ready, and ends after the last call returned and a barrier resolved: all of that is
//! timed. The loops do not allocate, so that every counted allocation is the engine's.

use std::sync::Arc;
use std::time::Duration;

use esker_log::{Append, Error, Log, Result, Ticket};
use tokio::runtime::Runtime;

use crate::load::slice::{SliceStart, Until};
use crate::load::tasks::{self, WORKER_THREADS};
use crate::load::threads;
use crate::measure::call_clock::{CallClock, TIMED_EVERY};
use crate::measure::latency::Latencies;
use crate::measure::per_thread::PerThread;
use crate::measure::resources::{self, ResourceUse};
use crate::records::payload::{Payload, Recipe};
use esker_command::exit::{Failure, Outcome};

/// Pipelined async callers yield after this many calls. A yield wakes another worker, which costs
/// as much as some 50 calls.
const YIELD_EVERY: u64 = 1024;

/// How the callers work.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub writers: u32,
    pub batch: u32,
    pub blocking: bool,
    pub pipelined: bool,
    /// The pause between the calls of a caller.
    pub delay: Duration,
}

impl Workload {
    /// Returns the number of calls of which one is timed.
    pub fn timed_every(&self) -> u64 {
        if self.pipelined { TIMED_EVERY } else { 1 }
    }
}

/// The result of a slice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slice {
    pub ops: u64,
    pub bytes: u64,
    pub time: Duration,
    pub used: ResourceUse,
}

/// All callers, between slices.
#[derive(Debug)]
pub struct Callers {
    log: Log,
    callers: Vec<Caller>,
    latencies: PerThread,
    runtime: Option<Runtime>,
}

impl Callers {
    /// Creates the callers, not started.
    pub fn new(log: &Log, work: Workload, recipe: &Recipe) -> Outcome<Self> {
        let callers = (0..work.writers).map(|writer| Caller::new(recipe, writer, work)).collect();
        let threads = if work.blocking { work.writers as usize } else { WORKER_THREADS };
        let latencies = PerThread::new(threads);
        let runtime = (!work.blocking)
            .then(tasks::runtime)
            .transpose()
            .map_err(|error| Failure::from_io("start threads", &error))?;
        Ok(Self { log: log.clone(), callers, latencies, runtime })
    }

    /// Runs one slice.
    pub fn run(&mut self, until: Until) -> Result<Slice> {
        let before = self.totals();
        resources::reset_peak();
        let (log, latencies, callers) = (&self.log, &self.latencies, &mut self.callers);
        let start = match &self.runtime {
            Some(runtime) => run_tasks(runtime, log, latencies, callers, until)?,
            None => run_threads(log, latencies, callers, until)?,
        };
        self.log.barrier()?.blocking_wait()?;
        let SliceStart { begin, snapshot } = start;
        let time = begin.elapsed();
        let used = ResourceUse { resident: resources::peak(), ..snapshot.used() };
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
}

fn run_tasks(
    runtime: &Runtime,
    log: &Log,
    latencies: &PerThread,
    callers: &mut Vec<Caller>,
    until: Until,
) -> Result<SliceStart> {
    let (log, latencies) = (log.clone(), latencies.clone());
    let work = move |mut caller: Caller, start| {
        let (log, latencies) = (log.clone(), latencies.clone());
        async move {
            let outcome = caller.work_async(&log, until, start, &latencies).await;
            (caller, outcome)
        }
    };
    let (start, ended) = tasks::run(runtime, callers.drain(..), work);
    let mut outcome = Ok(start);
    for (caller, ended) in ended {
        callers.push(caller);
        outcome = ended.and(outcome);
    }
    outcome
}

fn run_threads(
    log: &Log,
    latencies: &PerThread,
    callers: &mut [Caller],
    until: Until,
) -> Result<SliceStart> {
    let work = |caller: &mut Caller, (), start| caller.work(log, until, start, latencies);
    let (start, ended) =
        threads::run(callers, |_| (), work).map_err(|error| Error::NoThread(Arc::new(error)))?;
    ended.into_iter().collect::<Result<()>>()?;
    Ok(start)
}

/// A caller: its records and totals.
#[derive(Debug)]
struct Caller {
    work: Workload,
    /// The payloads, one for each record of a call.
    payloads: Vec<Payload>,
    count: u64,
    bytes: u64,
    slices: Vec<&'static [u8]>,
}

impl Caller {
    fn new(recipe: &Recipe, writer: u32, work: Workload) -> Self {
        Self {
            work,
            payloads: (0..work.batch).map(|_| recipe.payload(writer)).collect(),
            count: 0,
            bytes: 0,
            slices: Vec::with_capacity(work.batch as usize),
        }
    }

    async fn work_async(
        &mut self,
        log: &Log,
        until: Until,
        start: SliceStart,
        latencies: &PerThread,
    ) -> Result<()> {
        let (limit, deadline) = until.limits(start.begin);
        let mut clock = CallClock::with_deadline(self.work.timed_every(), deadline);
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
            } else if clock.calls() % YIELD_EVERY == YIELD_EVERY - 1 {
                drop(ticket);
                tokio::task::yield_now().await;
            }
            if clock.is_over(|time| latencies.add(time)) {
                break;
            }
            if !self.work.delay.is_zero() {
                tokio::time::sleep(self.work.delay).await;
                clock.restart();
            }
        }
        Ok(())
    }

    fn work(
        &mut self,
        log: &Log,
        until: Until,
        start: SliceStart,
        latencies: &PerThread,
    ) -> Result<()> {
        let (limit, deadline) = until.limits(start.begin);
        let mut clock = CallClock::with_deadline(self.work.timed_every(), deadline);
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
            if clock.is_over(|time| latencies.add(time)) {
                break;
            }
            if !self.work.delay.is_zero() {
                std::thread::sleep(self.work.delay);
                clock.restart();
            }
        }
        Ok(())
    }

    fn append_several(&mut self, log: &Log, end: u64) -> Result<Ticket> {
        let records = self.next_several(end);
        let appended = log.write(Append::records(&records)).map_err(Error::from);
        let slices = reuse(records);
        self.slices = slices;
        appended
    }

    async fn append_several_async(&mut self, log: &Log, end: u64) -> Result<Ticket> {
        let records = self.next_several(end);
        let appended = log.write_async(Append::records(&records)).await.map_err(Error::from);
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
