//! The concurrent callers of a store, as async tasks or as threads.

use std::time::{Duration, Instant};

use esker_kv::{Batch, CorruptedRecord, Error, Keyspace, Policy, Result, Store, StoreError};

use super::entry::{Entries, Sequence};
use super::run_length::Until;
use super::store_arguments::{KvBenchArguments, Operation};
use crate::load::slice::SliceStart;
use crate::load::{tasks, threads};
use crate::measure::call_clock::{CallClock, TIMED_EVERY};
use crate::measure::latency::Latencies;
use crate::measure::resources::{self, ResourceUse};
use esker_command::exit::{Failure, Outcome};

/// Async callers that do not wait yield after this many calls.
const YIELD_EVERY: u64 = 64;

/// The result of a timed part.
pub struct TimedPart {
    pub ops: u64,
    /// The time with the last sync.
    pub time: Duration,
    /// The time without the last sync.
    pub before_last_sync: Duration,
    /// Syncs of the log, the last one included.
    pub syncs: u64,
    /// The operations of which one has its latency measured.
    pub timed_every: u64,
    pub latencies: Latencies,
    pub used: ResourceUse,
}

/// The work of each caller.
#[derive(Clone)]
struct CallerWork {
    what: Operation,
    entries: Entries,
    store: Store,
    keyspace: Keyspace,
    batch: u32,
    waits: bool,
    timed_every: u64,
}

/// A caller of a store.
struct Caller {
    work: CallerWork,
    sequence: Sequence,
    writes: Batch,
    key: Vec<u8>,
    value: Vec<u8>,
    latencies: Latencies,
    done: u64,
    clock: CallClock,
}

/// Runs all callers, and a sync at the end.
pub fn run(
    arguments: &KvBenchArguments,
    policy: Policy,
    store: &Store,
    what: Operation,
) -> Outcome<TimedPart> {
    let failure =
        |error: Error| Failure::failed(esker_command::library_errors::with_causes(&error));
    let waits = policy == Policy::Always;
    let puts = what == Operation::Put;
    if puts {
        warm_up(arguments, store, waits).map_err(failure)?;
    }
    let every_one = puts && (waits || arguments.compares()) || arguments.cold;
    let work = CallerWork {
        what,
        entries: Entries::new(arguments),
        store: store.clone(),
        keyspace: store.keyspace(),
        batch: arguments.batch,
        waits,
        timed_every: if every_one { 1 } else { TIMED_EVERY },
    };
    let callers: Vec<_> =
        (0..arguments.writers).map(|n| Caller::new(&work, n, arguments.writers)).collect();
    resources::reset_peak();
    let syncs = store.stats().log.syncs;
    let until = Until::new(arguments, policy, store, puts);
    // The deadline counts from the same moment as the time that is reported.
    let (start, ended) = if arguments.has_threads(what) {
        threads::run(callers, |_| (), |caller, (), start| caller.run(until, start.begin)).map_err(
            |error| Failure::failed(format!("start a thread: {error}; use fewer --writers")),
        )?
    } else {
        let runtime =
            tasks::runtime().map_err(|error| Failure::from_io("start the runtime", &error))?;
        let work = move |caller: Caller, start: SliceStart| caller.run_async(until, start.begin);
        tasks::run(&runtime, callers.into_iter(), work)
    };
    let before_last_sync = start.begin.elapsed();
    if puts || what == Operation::Mixed {
        store.sync().map_err(|error| failure(error.into()))?;
    }
    let time = start.begin.elapsed();
    let syncs = store.stats().log.syncs - syncs;
    let used = ResourceUse { resident: resources::peak(), ..start.snapshot.used() };
    let mut latencies = Latencies::new();
    let mut ops = 0;
    for ended in ended {
        let (caller, done) = ended.map_err(failure)?;
        latencies.merge(&caller);
        ops += done;
    }
    let timed_every = work.timed_every;
    Ok(TimedPart { ops, time, before_last_sync, syncs, timed_every, latencies, used })
}

/// Puts that are not timed.
fn warm_up(arguments: &KvBenchArguments, store: &Store, waits: bool) -> Result<()> {
    let entries = Entries::new(arguments);
    let keyspace = store.keyspace();
    let mut sequence = entries.sequence(0, 1);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for _ in 0..arguments.warm_up() {
        let n = entries.next(&mut sequence);
        let ticket = keyspace.put(entries.key(n, &mut key), entries.value(n, &mut value))?;
        if waits {
            ticket.blocking_wait()?;
        }
    }
    Ok(store.sync()?)
}

type CallerResult = Result<(Latencies, u64)>;

impl Caller {
    fn new(work: &CallerWork, caller: u32, callers: u32) -> Self {
        Self {
            work: work.clone(),
            sequence: work.entries.sequence(caller, callers),
            writes: Batch::new(),
            key: Vec::new(),
            value: Vec::new(),
            latencies: Latencies::new(),
            done: 0,
            clock: CallClock::start(work.timed_every),
        }
    }

    /// Whether the next call writes.
    fn writes(&self) -> bool {
        match self.work.what {
            Operation::Put => true,
            Operation::Mixed => self.done.is_multiple_of(2),
            Operation::Get | Operation::Scan | Operation::Open => false,
        }
    }

    fn fill_batch(&mut self) -> Result<()> {
        self.writes.clear();
        for _ in 0..self.work.batch {
            let n = self.work.entries.next(&mut self.sequence);
            let key = self.work.entries.key(n, &mut self.key);
            let value = self.work.entries.value(n, &mut self.value);
            self.writes.put(&self.work.keyspace, key, value)?;
        }
        Ok(())
    }

    fn fill_one(&mut self) {
        let n = self.work.entries.next(&mut self.sequence);
        self.work.entries.key(n, &mut self.key);
        self.work.entries.value(n, &mut self.value);
    }

    fn get(&mut self) -> Result<()> {
        let n = self.work.entries.next(&mut self.sequence);
        let value = self.work.keyspace.get(self.work.entries.key(n, &mut self.key))?;
        let matches = |value: &[u8]| value.first_chunk::<8>() == Some(&n.to_le_bytes());
        match value {
            Some(value) if matches(&value) => Ok(()),
            None if self.work.what == Operation::Mixed => Ok(()),
            _ => {
                let what = "it is not the value put";
                Err(StoreError::CorruptedRecord(CorruptedRecord { seq: 0.into(), what }).into())
            }
        }
    }

    /// Counts a call. Returns whether it was the last.
    fn is_over(&mut self, until: Until, begin: Instant) -> bool {
        self.done += 1;
        let now = self.clock.end_call(|time| self.latencies.add(time));
        until.is_over(&self.work.store, self.done, now.map(|now| now - begin))
    }

    fn ended(self) -> CallerResult {
        let each = if self.work.what == Operation::Put { u64::from(self.work.batch) } else { 1 };
        Ok((self.latencies, self.done * each))
    }

    fn run(mut self, until: Until, begin: Instant) -> CallerResult {
        self.clock.restart();
        loop {
            if self.writes() {
                let ticket = if self.work.batch > 1 {
                    self.fill_batch()?;
                    self.work.store.write(&self.writes)?
                } else {
                    self.fill_one();
                    self.work.keyspace.put(&self.key, &self.value)?
                };
                if self.work.waits {
                    ticket.blocking_wait()?;
                }
            } else {
                self.get()?;
            }
            if self.is_over(until, begin) {
                return self.ended();
            }
        }
    }

    async fn run_async(mut self, until: Until, begin: Instant) -> CallerResult {
        self.clock.restart();
        loop {
            if self.writes() {
                let ticket = if self.work.batch > 1 {
                    self.fill_batch()?;
                    self.work.store.write_async(&self.writes).await?
                } else {
                    self.fill_one();
                    self.work.keyspace.put_async(&self.key, &self.value).await?
                };
                if self.work.waits {
                    ticket.await?;
                }
            } else {
                self.get()?;
            }
            if self.is_over(until, begin) {
                return self.ended();
            }
            if !self.work.waits && self.done.is_multiple_of(YIELD_EVERY) {
                tokio::task::yield_now().await;
                // What other tasks did is no part of a call.
                self.clock.restart();
            }
        }
    }
}
