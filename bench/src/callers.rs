//! The records of the concurrent callers of a run, and of the one that pipelines.

use std::time::Instant;

use esker_bench::measure::call_clock::TIMED_EVERY;
use esker_bench::measure::latency::Latencies;
use esker_bench::records::payload::Payload;

use crate::job::Job;

/// A caller, and what it has appended.
#[derive(Debug)]
pub struct Member {
    pub writer: u32,
    pub payload: Payload,
    pub count: u64,
    pub bytes: u64,
}

impl Member {
    /// Creates a caller that has appended nothing.
    pub fn new(job: &Job, writer: u32) -> Self {
        Self { writer, payload: job.payload(writer), count: 0, bytes: 0 }
    }

    /// Returns its next record.
    pub fn next(&mut self) -> &[u8] {
        let record = self.payload.record(self.count);
        self.count += 1;
        self.bytes += record.len() as u64;
        record
    }
}

/// The records that one pipelining caller appends. The time from a record until the next one is
/// asked for is that of its append.
#[derive(Debug)]
pub struct Records<'a> {
    member: &'a mut Member,
    end: u64,
    asked: Option<Instant>,
    times: &'a mut Latencies,
}

impl<'a> Records<'a> {
    /// The next `records` of a caller.
    pub fn new(member: &'a mut Member, records: u64, times: &'a mut Latencies) -> Self {
        let end = member.count + records;
        Self { member, end, asked: None, times }
    }

    /// Returns the next record; `None` after the last.
    pub fn next(&mut self) -> Option<&[u8]> {
        if let Some(asked) = self.asked.take() {
            self.times.add(asked.elapsed());
        }
        if self.is_at_end() {
            return None;
        }
        let is_timed = self.member.count.is_multiple_of(TIMED_EVERY);
        let record = self.member.next();
        self.asked = is_timed.then(Instant::now);
        Some(record)
    }

    /// Whether the last record was returned.
    pub fn is_at_end(&self) -> bool {
        self.member.count == self.end
    }
}
