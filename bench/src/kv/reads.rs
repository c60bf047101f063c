//! Reads of all kinds of a store that was loaded in a random order.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::keys::{Expected, key_of};
use super::store::{Reader, Store};
use super::stores::Kind;
use super::{Measured, cold, load, reopen, result, scan};
use crate::callers::Until;
use crate::harness::{JobResult, WARM_UP_MOST, WARM_UP_PART};
use crate::histogram::Histogram;
use crate::job::Job;
use crate::plan::Plan;

/// Keys of one call that gets several.
pub const GROUP: u32 = 64;
/// Two looks at the clock cost as much as a get from memory.
const TIMED_EVERY: u64 = 16;
/// The part of `--seconds` that each kind of get is timed for.
const PART: f64 = 0.5;

/// Loads, reads, closes, opens, and reads again.
pub fn run(job: &Job, kind: &Kind) -> Result<Vec<JobResult>> {
    let mut results = Vec::new();
    let mut add = |work, note, measured: Measured| {
        results.push(result(job, kind, work, note, &measured));
    };
    let store = (kind.open)(job).context("open")?;
    add("load-random", kind.loads, load::timed(job, &*store)?);
    store.await_compactions().context("compactions")?;
    // Whatever caches there are, are warm after the first one.
    scan::compare(job, &*store).context("compare")?;
    add("scan-all", kind.reads, scan::timed(job, &*store).context("scan")?);
    for (work, callers) in [("get-1", 1), ("get-2", 2)] {
        gets(job, &*store, callers, warm_up(job), TIMED_EVERY).context("warm up")?;
        add(work, kind.reads, gets(job, &*store, callers, part(job), TIMED_EVERY).context(work)?);
    }
    if let Some(measured) = multi_gets(job, &*store).context("multi-get")? {
        add("multi-get", kind.reads, measured);
    }
    let (store, closed, opened) = reopen::timed(job, kind, store)?;
    add("close", kind.reads, closed);
    add("open", kind.reads, opened);
    scan::compare_all(job, &*store).context("compare after opening")?;
    add("get-cold", kind.reads, cold::timed(job, kind, store)?);
    Ok(results)
}

fn warm_up(job: &Job) -> Until {
    Until::Elapsed(Duration::from_secs_f64((job.seconds * WARM_UP_PART).min(WARM_UP_MOST)))
}

fn part(job: &Job) -> Until {
    Until::Elapsed(Duration::from_secs_f64(job.seconds * PART))
}

/// Several callers get random keys.
pub fn gets(
    job: &Job,
    store: &dyn Store,
    callers: u32,
    until: Until,
    timed_every: u64,
) -> Result<Measured> {
    let ready = Barrier::new(callers as usize + 1);
    thread::scope(|scope| {
        let ready = &ready;
        let threads: Vec<_> = (0..callers)
            .map(|caller| {
                scope.spawn(move || {
                    let reader = store.reader();
                    ready.wait();
                    one_caller(job, &*reader?, caller, until, timed_every)
                })
            })
            .collect();
        // Short works would be over before this thread looks at the clock.
        let begin = Instant::now();
        ready.wait();
        let (mut ops, mut times) = (0, Histogram::new());
        let mut outcome = Ok(());
        for thread in threads {
            match thread.join().unwrap_or_else(|_| Err(anyhow!("a caller panicked"))) {
                Ok((count, of_caller)) => {
                    ops += count;
                    times.merge(&of_caller);
                }
                Err(error) => outcome = Err(error),
            }
        }
        outcome.map(|()| Measured { ops, took: begin.elapsed(), times })
    })
}

fn one_caller(
    job: &Job,
    reader: &dyn Reader,
    caller: u32,
    until: Until,
    timed_every: u64,
) -> Result<(u64, Histogram)> {
    let plan = Plan::new(job);
    let mut expected = Expected::new(job);
    let mut times = Histogram::new();
    let mut count = 0;
    let begin = Instant::now();
    loop {
        let is_timed = count % timed_every == 0;
        let asked = is_timed.then(Instant::now);
        let number = plan.pick(u64::from(caller) << 32 | count, job.count);
        let key = key_of(job.random, 0, number);
        reader.get(&key, &mut |value| expected.see(number, value))?;
        count += 1;
        let now = asked.map(|asked| {
            let now = Instant::now();
            times.add(now - asked);
            now
        });
        let is_over = match until {
            Until::Records(records) => count >= records,
            Until::Elapsed(time) => now.is_some_and(|now| now - begin >= time),
        };
        if is_over {
            return Ok((count, times));
        }
    }
}

/// One caller gets several random keys in each call; none if the store has no such call.
fn multi_gets(job: &Job, store: &dyn Store) -> Result<Option<Measured>> {
    let plan = Plan::new(job);
    let reader = store.reader()?;
    let mut expected = Expected::new(job);
    let (mut numbers, mut keys) = (Vec::new(), Vec::new());
    let mut times = Histogram::new();
    let time = Duration::from_secs_f64(job.seconds * PART);
    let (mut ops, begin) = (0, Instant::now());
    let mut last = begin;
    while last - begin < time {
        numbers.clear();
        numbers.extend((ops..).take(GROUP as usize).map(|n| plan.pick(n, job.count)));
        keys.clear();
        keys.extend(numbers.iter().map(|number| key_of(job.random, 0, *number)));
        if !reader.get_many(&keys, &mut |at, value| expected.see(numbers[at], value))? {
            return Ok(None);
        }
        ops += u64::from(GROUP);
        let now = Instant::now();
        times.add(now - last);
        last = now;
    }
    Ok(Some(Measured { ops, took: last - begin, times }))
}
