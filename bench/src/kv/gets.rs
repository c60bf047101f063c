//! Callers that get random keys.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use esker_bench::load::slice::{SliceStart, Until};
use esker_bench::load::threads;
use esker_bench::measure::call_clock::CallClock;
use esker_bench::measure::latency::Latencies;

use super::keys::{ExpectedValues, key_of};
use super::store::{Reader, Store};
use crate::job::Job;
use crate::job_result::TimedPart;
use crate::plan::Plan;
use crate::work::GROUP_KEYS;

/// Several callers get random keys.
pub fn gets(
    job: &Job,
    store: &dyn Store,
    callers: u32,
    until: Until,
    timed_every: u64,
) -> Result<TimedPart> {
    let work = |caller: u32, reader: Result<Box<dyn Reader + '_>>, start: SliceStart| {
        one_caller(job, &*reader?, caller, until.limits(start.begin), timed_every)
    };
    let (start, ended) =
        threads::run(0..callers, |_| store.reader(), work).context("start a thread")?;
    let took = start.begin.elapsed();
    let (mut ops, mut times) = (0, Latencies::new());
    for ended in ended {
        let (count, of_caller) = ended?;
        ops += count;
        times.merge(&of_caller);
    }
    Ok(TimedPart { ops, took, times })
}

fn one_caller(
    job: &Job,
    reader: &dyn Reader,
    caller: u32,
    (limit, deadline): (u64, Option<Instant>),
    timed_every: u64,
) -> Result<(u64, Latencies)> {
    let plan = Plan::new(job);
    let (mut expected, mut times) = (ExpectedValues::new(job), Latencies::new());
    let mut clock = CallClock::with_deadline(timed_every, deadline);
    for count in 0..limit {
        let number = plan.pick(u64::from(caller) << 32 | count, job.count);
        let key = key_of(job.random, 0, number);
        reader.get(&key, &mut |value| expected.see(number, value))?;
        if clock.is_over(|time| times.add(time)) {
            break;
        }
    }
    Ok((clock.calls(), times))
}

/// Gets several random keys in each call of one caller; none if the store has no such call.
pub fn multi_gets(job: &Job, store: &dyn Store, time: Duration) -> Result<Option<TimedPart>> {
    let plan = Plan::new(job);
    let reader = store.reader()?;
    let (mut expected, mut times) = (ExpectedValues::new(job), Latencies::new());
    let (mut numbers, mut keys) = (Vec::new(), Vec::new());
    let (mut ops, begin) = (0, Instant::now());
    let mut clock = CallClock::with_deadline(1, Some(begin + time));
    loop {
        numbers.clear();
        numbers.extend((ops..).take(GROUP_KEYS as usize).map(|n| plan.pick(n, job.count)));
        keys.clear();
        keys.extend(numbers.iter().map(|number| key_of(job.random, 0, *number)));
        if !reader.get_many(&keys, &mut |at, value| expected.see(numbers[at], value))? {
            return Ok(None);
        }
        ops += u64::from(GROUP_KEYS);
        if clock.is_over(|time| times.add(time)) {
            return Ok(Some(TimedPart { ops, took: begin.elapsed(), times }));
        }
    }
}
