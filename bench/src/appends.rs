//! Callers append records, and everything is read back.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use esker_bench::load::slice::{SliceStart, Until};
use esker_bench::load::threads;
use esker_bench::measure::call_clock::CallClock;
use esker_bench::measure::latency::Latencies;
use esker_bench::measure::per_thread::PerThread;
use esker_bench::records::payload::Payload;

use crate::callers::{Member, Records};
use crate::check::Check;
use crate::job::{Job, Set, Shape};
use crate::job_result::{JobResult, TimedPart};
use crate::lock_file;
use crate::peer::{Caller, Log, Peer};

/// The reader at the tip compares every byte of every so many-th record.
const FULL_AT_TIP: u64 = 64;

/// A timed part of appends.
struct AppendRun {
    /// The records of each writer, with those of the warm-up.
    counts: Vec<u64>,
    bytes: u64,
    measured: TimedPart,
    reader_took: Option<Duration>,
}

/// Does the job on a log.
pub fn run(job: &Job, peer: &Peer) -> Result<JobResult> {
    let log = (peer.open)(job).context("open")?;
    let appended = match job.shape {
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
    check.done(&appended.counts)?;
    let note = match (job.shape, peer.pipelining) {
        (Shape::Pipelined, pipelining) if !pipelining.is_empty() => {
            format!("{}; {pipelining}", peer.note)
        }
        _ => peer.note.into(),
    };
    let AppendRun { bytes, measured, reader_took, .. } = appended;
    let rate = |took: Duration| bytes as f64 / 1e6 / took.as_secs_f64();
    Ok(JobResult {
        p999_us: (job.set == Set::Kv).then(|| measured.times.quantile_us(0.999)),
        version: lock_file::version(peer.package),
        note,
        reader_mb_per_s: reader_took.map(rate),
        ..measured.result(bytes)
    })
}

fn warm_up_records(job: &Job) -> u64 {
    (job.count / 10).max(1)
}

fn callers(log: &dyn Log, job: &Job) -> Result<AppendRun> {
    let mut members: Vec<_> = (0..job.writers).map(|writer| Member::new(job, writer)).collect();
    let (warm_up, until) = if job.count > 0 {
        (Until::Records(warm_up_records(job)), Until::Records(job.count))
    } else {
        (Until::Elapsed(job.warm_up()), Until::Elapsed(job.time()))
    };
    let times = PerThread::shared(members.len());
    run_callers(log, &mut members, warm_up, &times).context("warm up")?;
    times.take();
    let sum = |members: &[Member]| {
        members.iter().fold((0, 0), |(ops, bytes), m| (ops + m.count, bytes + m.bytes))
    };
    let before = sum(&members);
    let took = run_callers(log, &mut members, until, &times)?;
    let after = sum(&members);
    Ok(AppendRun {
        counts: members.iter().map(|member| member.count).collect(),
        bytes: after.1 - before.1,
        measured: TimedPart { ops: after.0 - before.0, took, times: times.take() },
        reader_took: None,
    })
}

/// Lets all callers work, as tasks or as threads. Returns how long they took.
fn run_callers(
    log: &dyn Log,
    members: &mut Vec<Member>,
    until: Until,
    times: &PerThread,
) -> Result<Duration> {
    if let Some(took) = log.run_tasks(members, until, times) {
        return took;
    }
    let work = |member: &mut Member, caller: Result<Box<dyn Caller + '_>>, start: SliceStart| {
        let mut caller = caller?;
        let (limit, deadline) = until.limits(start.begin);
        let mut clock = CallClock::with_deadline(1, deadline);
        for _ in 0..limit {
            caller.append_next(member)?;
            if clock.is_over(|time| times.add(time)) {
                break;
            }
        }
        Ok(())
    };
    let open = |member: &mut &mut Member| log.caller(member.writer);
    let (start, ended) = threads::run(members, open, work).context("start a thread")?;
    let took = start.begin.elapsed();
    ended.into_iter().collect::<Result<()>>()?;
    Ok(took)
}

fn pipelined(log: &dyn Log, job: &Job) -> Result<AppendRun> {
    let (mut member, mut times) = (Member::new(job, 0), Latencies::new());
    log.pipeline(&mut Records::new(&mut member, warm_up_records(job), &mut times))
        .context("warm up")?;
    times.reset();
    let before = member.bytes;
    let begin = Instant::now();
    log.pipeline(&mut Records::new(&mut member, job.count, &mut times))?;
    let took = begin.elapsed();
    Ok(AppendRun {
        counts: vec![member.count],
        bytes: member.bytes - before,
        measured: TimedPart { ops: job.count, took, times },
        reader_took: None,
    })
}

/// A writer of batches.
struct Batches {
    payloads: Vec<Payload>,
    count: u64,
    bytes: u64,
}

impl Batches {
    fn new(job: &Job) -> Self {
        let payloads = (0..job.batch).map(|_| job.payload(0)).collect();
        Self { payloads, count: 0, bytes: 0 }
    }

    /// Appends a batch of at most `records`.
    fn append(&mut self, log: &dyn Log, records: u64) -> Result<()> {
        let payloads = self.payloads.iter_mut().zip(self.count..).take(records as usize);
        let records: Vec<&[u8]> = payloads.map(|(payload, at)| payload.record(at)).collect();
        log.append_batch(&records)?;
        self.count += records.len() as u64;
        self.bytes += records.iter().map(|record| record.len() as u64).sum::<u64>();
        Ok(())
    }
}

fn stream(log: &dyn Log, job: &Job) -> Result<AppendRun> {
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
        let (mut writer, mut times) = (Batches::new(job), Latencies::new());
        let mut clock = CallClock::start(1);
        while writer.count < job.count {
            writer.append(log, job.count - writer.count)?;
            clock.end_call(|time| times.add(time));
        }
        let took = begin.elapsed();
        let reader_took = reader.join().unwrap_or_else(|_| Err(anyhow!("the reader panicked")))?;
        Ok(AppendRun {
            counts: vec![writer.count],
            bytes: writer.bytes,
            measured: TimedPart { ops: writer.count, took, times },
            reader_took: Some(reader_took),
        })
    })
}

fn batches(log: &dyn Log, job: &Job) -> Result<AppendRun> {
    let mut writer = Batches::new(job);
    let mut append_for = |time: Duration| -> Result<_> {
        let (count, bytes) = (writer.count, writer.bytes);
        let mut times = Latencies::new();
        let begin = Instant::now();
        let mut clock = CallClock::with_deadline(1, Some(begin + time));
        loop {
            writer.append(log, u64::MAX)?;
            if clock.is_over(|time| times.add(time)) {
                break;
            }
        }
        let measured = TimedPart { ops: writer.count - count, took: begin.elapsed(), times };
        Ok((measured, writer.bytes - bytes))
    };
    append_for(job.warm_up()).context("warm up")?;
    let (measured, bytes) = append_for(job.time())?;
    Ok(AppendRun { counts: vec![writer.count], bytes, measured, reader_took: None })
}
