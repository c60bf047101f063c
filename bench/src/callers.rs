//! The concurrent callers of a run, and the one that pipelines.

use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::histogram::Histogram;
use crate::job::Job;
use crate::payload::Payload;
use crate::peers::Log;

/// Two looks at the clock cost as much as an append that does not wait.
const TIMED_EVERY: u64 = 16;
const STACK: usize = 256 << 10;

/// When a part of a run ends.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    Elapsed(Duration),
    /// Records of one caller.
    Records(u64),
}

/// One caller: its records, and what it saw.
#[derive(Debug)]
pub struct Member {
    pub writer: u32,
    pub payload: Payload,
    pub count: u64,
    pub bytes: u64,
    pub times: Histogram,
}

impl Member {
    /// A caller that has not begun.
    pub fn new(job: &Job, writer: u32) -> Self {
        let payload = Payload::new(job, writer);
        Self { writer, payload, count: 0, bytes: 0, times: Histogram::new() }
    }

    /// Its next record.
    pub fn next(&mut self) -> &[u8] {
        let record = self.payload.record(self.count);
        self.count += 1;
        self.bytes += record.len() as u64;
        record
    }
}

/// When a caller's calls begin and end: one begins where the one before it ended.
#[derive(Debug)]
pub struct Clock {
    last: Instant,
    deadline: Option<Instant>,
    left: u64,
}

impl Clock {
    /// Starts now; the deadline counts from when all began.
    pub fn start(begin: Instant, until: Until) -> Self {
        let (deadline, left) = match until {
            Until::Elapsed(time) => (Some(begin + time), u64::MAX),
            Until::Records(records) => (None, records),
        };
        Self { last: Instant::now(), deadline, left }
    }

    /// A call ended; whether it was the last.
    pub fn is_over(&mut self, times: &mut Histogram) -> bool {
        let now = Instant::now();
        times.add(now - self.last);
        self.last = now;
        self.left -= 1;
        self.left == 0 || self.deadline.is_some_and(|deadline| now >= deadline)
    }
}

/// Lets every caller work as a thread of its own; how long they took.
pub fn run_threads<L: Log + ?Sized>(
    log: &L,
    members: &mut [Member],
    until: Until,
) -> Result<Duration> {
    let doors = members.len() + 1;
    let (ready, go, begin) = (Barrier::new(doors), Barrier::new(doors), OnceLock::new());
    std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(members.len());
        for member in members {
            let (ready, go, begin) = (&ready, &go, &begin);
            let work = move || -> Result<()> {
                let caller = log.caller(member.writer);
                ready.wait();
                go.wait();
                let mut caller = caller?;
                let mut clock = Clock::start(*begin.get_or_init(Instant::now), until);
                loop {
                    caller.append_next(member)?;
                    if clock.is_over(&mut member.times) {
                        return Ok(());
                    }
                }
            };
            let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
            match thread {
                Ok(thread) => threads.push(thread),
                // The others wait for one that never comes.
                Err(error) => {
                    eprintln!("start a thread: {error}");
                    std::process::exit(1);
                }
            }
        }
        ready.wait();
        let begin = *begin.get_or_init(Instant::now);
        go.wait();
        let mut outcome = Ok(());
        for thread in threads {
            outcome =
                outcome.and(thread.join().unwrap_or_else(|_| Err(anyhow!("a caller panicked"))));
        }
        outcome.map(|()| begin.elapsed())
    })
}

/// What one pipelining writer appends.
#[derive(Debug)]
pub struct Records<'a> {
    member: &'a mut Member,
    end: u64,
    asked: Option<Instant>,
}

impl<'a> Records<'a> {
    /// So many records of a writer.
    pub fn new(member: &'a mut Member, records: u64) -> Self {
        let end = member.count + records;
        Self { member, end, asked: None }
    }

    /// The next one.
    pub fn next(&mut self) -> Option<&[u8]> {
        if let Some(asked) = self.asked.take() {
            self.member.times.add(asked.elapsed());
        }
        if self.member.count == self.end {
            return None;
        }
        if (self.member.count + 1).is_multiple_of(TIMED_EVERY) {
            self.asked = Some(Instant::now());
        }
        Some(self.member.next())
    }

    /// Whether the one that `next` gave is the last.
    #[cfg_attr(not(feature = "raft-engine"), allow(dead_code, reason = "only raft-engine asks"))]
    pub fn at_last(&self) -> bool {
        self.member.count == self.end
    }
}
