//! The side of the child: does one job on one system of this process, and reads back what it wrote.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::callers::{Member, Records, Until};
use crate::check::Check;
use crate::histogram::Histogram;
use crate::job::{Job, Set, Shape};
use crate::kv;
use crate::payload::Payload;
use crate::peers::{self, Log};
use crate::slots;

/// Work before the timed part: such a share of it, and at most so many seconds.
pub const WARM_UP_PART: f64 = 0.2;
pub const WARM_UP_MOST: f64 = 0.3;
/// The reader at the tip compares every byte of every so many-th record.
const FULL_AT_TIP: u64 = 64;

/// The result of a job. A child prints it as one line of JSON, or several as an array.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobResult {
    /// The name of the work, if the job does several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<String>,
    pub ops: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999_us: Option<f64>,
    pub verified: bool,
    pub durable: bool,
    pub version: String,
    pub note: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader_mb_per_s: Option<f64>,
}

/// What was measured, and how many records each writer wrote in all.
struct Measured {
    counts: Vec<u64>,
    ops: u64,
    bytes: u64,
    took: Duration,
    times: Histogram,
    reader_took: Option<Duration>,
}

/// Does the job: one result for each work that it does.
pub fn run(job: &Job) -> Result<Vec<JobResult>> {
    if job.set == Set::Kv {
        return kv::run(job);
    }
    let result = if job.shape.is_on_slots() { slots::run(job) } else { appends(job) };
    Ok(vec![result?])
}

/// Callers append records, and everything is read back.
pub fn appends(job: &Job) -> Result<JobResult> {
    let peer = peers::find(job)?;
    let log = (peer.open)(job).context("open")?;
    let measured = match job.shape {
        Shape::Callers => callers(&*log, job),
        Shape::Pipelined => pipelined(&*log, job),
        Shape::Stream => stream(&*log, job),
        Shape::Batches if job.writers == 1 => batches(&*log, job),
        Shape::Batches => callers(&*log, job),
        _ => bail!("a log of entries has no slots"),
    }?;
    log.close().context("close")?;
    let mut check = Check::new(job, 1);
    (peer.read_all)(job, &mut |record| check.see(record)).context("read back")?;
    check.done(&measured.counts)?;
    let note = match (job.shape, peer.pipelining) {
        (Shape::Pipelined, pipelining) if !pipelining.is_empty() => {
            format!("{}; {pipelining}", peer.note)
        }
        _ => peer.note.into(),
    };
    let rate = |took: Duration| measured.bytes as f64 / 1e6 / took.as_secs_f64();
    Ok(JobResult {
        work: None,
        ops: measured.ops,
        bytes: measured.bytes,
        seconds: measured.took.as_secs_f64(),
        p50_us: measured.times.quantile_us(0.5),
        p99_us: measured.times.quantile_us(0.99),
        p999_us: (job.set == Set::Kv).then(|| measured.times.quantile_us(0.999)),
        verified: true,
        durable: true,
        version: peers::version(peer.package),
        note,
        reader_mb_per_s: measured.reader_took.map(rate),
    })
}

fn warm_up_records(job: &Job) -> u64 {
    (job.count / 10).max(1)
}

fn callers(log: &dyn Log, job: &Job) -> Result<Measured> {
    let mut members: Vec<_> = (0..job.writers).map(|writer| Member::new(job, writer)).collect();
    let (warm_up, until) = if job.count > 0 {
        (Until::Records(warm_up_records(job)), Until::Records(job.count))
    } else {
        let warm_up = (job.seconds * WARM_UP_PART).min(WARM_UP_MOST);
        let time = |seconds| Until::Elapsed(Duration::from_secs_f64(seconds));
        (time(warm_up), time(job.seconds))
    };
    log.work(&mut members, warm_up).context("warm up")?;
    let sum = |members: &[Member]| {
        members.iter().fold((0, 0), |(ops, bytes), m| (ops + m.count, bytes + m.bytes))
    };
    let before = sum(&members);
    for member in &mut members {
        member.times = Histogram::new();
    }
    let took = log.work(&mut members, until)?;
    let after = sum(&members);
    let mut times = Histogram::new();
    for member in &members {
        times.merge(&member.times);
    }
    Ok(Measured {
        counts: members.iter().map(|member| member.count).collect(),
        ops: after.0 - before.0,
        bytes: after.1 - before.1,
        took,
        times,
        reader_took: None,
    })
}

fn pipelined(log: &dyn Log, job: &Job) -> Result<Measured> {
    let mut member = Member::new(job, 0);
    log.pipeline(&mut Records::new(&mut member, warm_up_records(job))).context("warm up")?;
    member.times = Histogram::new();
    let before = member.bytes;
    let begin = Instant::now();
    log.pipeline(&mut Records::new(&mut member, job.count))?;
    let took = begin.elapsed();
    Ok(Measured {
        counts: vec![member.count],
        ops: job.count,
        bytes: member.bytes - before,
        took,
        times: member.times,
        reader_took: None,
    })
}

fn stream(log: &dyn Log, job: &Job) -> Result<Measured> {
    let mut tail = log.tail()?;
    thread::scope(|scope| {
        let begin = Instant::now();
        let reader = scope.spawn(move || -> Result<Duration> {
            let mut check = Check::new(job, FULL_AT_TIP);
            while check.seen() < job.count {
                tail.next(&mut |record| check.see(record))?;
            }
            Ok(begin.elapsed())
        });
        let mut payloads: Vec<_> = (0..job.batch).map(|_| Payload::new(job, 0)).collect();
        let (mut ops, mut bytes, mut times) = (0, 0, Histogram::new());
        let mut last = begin;
        while ops < job.count {
            let wanted = u64::from(job.batch).min(job.count - ops) as usize;
            let records: Vec<&[u8]> = payloads[..wanted]
                .iter_mut()
                .zip(ops..)
                .map(|(payload, count)| payload.record(count))
                .collect();
            log.append_batch(&records)?;
            ops += wanted as u64;
            bytes += records.iter().map(|record| record.len() as u64).sum::<u64>();
            let now = Instant::now();
            times.add(now - last);
            last = now;
        }
        let took = begin.elapsed();
        let reader_took = reader.join().unwrap_or_else(|_| Err(anyhow!("the reader panicked")))?;
        let counts = vec![ops];
        Ok(Measured { counts, ops, bytes, took, times, reader_took: Some(reader_took) })
    })
}

fn batches(log: &dyn Log, job: &Job) -> Result<Measured> {
    let mut payloads: Vec<_> = (0..job.batch).map(|_| Payload::new(job, 0)).collect();
    let mut count = 0;
    let mut work = |seconds: f64| -> Result<_> {
        let (first, mut bytes, mut times) = (count, 0, Histogram::new());
        let begin = Instant::now();
        let mut last = begin;
        while (last - begin).as_secs_f64() < seconds {
            let records: Vec<&[u8]> =
                payloads.iter_mut().zip(count..).map(|(payload, at)| payload.record(at)).collect();
            log.append_batch(&records)?;
            count += records.len() as u64;
            bytes += records.iter().map(|record| record.len() as u64).sum::<u64>();
            let now = Instant::now();
            times.add(now - last);
            last = now;
        }
        Ok((count, count - first, bytes, last - begin, times))
    };
    work((job.seconds * WARM_UP_PART).min(WARM_UP_MOST)).context("warm up")?;
    let (count, ops, bytes, took, times) = work(job.seconds)?;
    Ok(Measured { counts: vec![count], ops, bytes, took, times, reader_took: None })
}
