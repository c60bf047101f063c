//! What a connection saw.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use esker_oracle::history::{Call, check};
use esker_oracle::{Range, Timestamp};

use crate::bench::measure::latency::Latencies;
use crate::exit::{Failure, Outcome};

/// The most calls that are recorded in all. With more, their order is not checked.
pub const CALLS: usize = 8_000_000;

/// What answers a request can have.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    /// The address of the leader, of a node that does not lead.
    pub leader: Option<String>,
}

/// What a connection, or all of them, saw.
#[derive(Debug)]
pub struct Tally {
    pub latencies: Latencies,
    calls: Vec<Call>,
    /// Calls that were not recorded.
    unrecorded: u64,
    most: usize,
    /// Every request without timestamps, by what happened.
    pub failed: BTreeMap<String, u64>,
}

impl Tally {
    /// For one of so many.
    pub fn one_of(connections: usize) -> Self {
        Self {
            latencies: Latencies::new(),
            calls: Vec::new(),
            unrecorded: 0,
            most: CALLS / connections.max(1),
            failed: BTreeMap::new(),
        }
    }

    /// Records an answer. `due` is when the request should have been sent.
    pub fn add(&mut self, times: Times, range: Range) {
        let Times { begun, due, called, returned } = times;
        self.latencies.add(returned.saturating_duration_since(due));
        if self.calls.len() >= self.most {
            self.unrecorded += 1;
            return;
        }
        let since = |at: Instant| at.saturating_duration_since(begun).as_nanos() as u64;
        self.calls.push(Call { called: since(called), returned: since(returned), range });
    }

    /// Adds calls whose latencies are recorded elsewhere, and how many more there were.
    pub fn record(&mut self, calls: Vec<Call>, unrecorded: u64) {
        self.calls.extend(calls);
        self.unrecorded += unrecorded;
    }

    pub fn fail(&mut self, class: impl Into<String>) {
        *self.failed.entry(class.into()).or_default() += 1;
    }

    pub fn merge(&mut self, other: Self) {
        self.latencies.merge(&other.latencies);
        self.calls.extend(other.calls);
        self.unrecorded += other.unrecorded;
        for (class, count) in other.failed {
            *self.failed.entry(class).or_default() += count;
        }
    }

    /// Whether all timestamps were checked to be unique and in order. Fails if they are not.
    pub fn check(&self) -> Outcome<bool> {
        check(&self.calls).map_err(|violation| Failure::failed(violation.to_string()))?;
        Ok(self.unrecorded == 0 && !self.calls.is_empty())
    }

    /// How long after `from` the first timestamps came that were asked for after it.
    pub fn first_after(&self, begun: Instant, from: Instant) -> Option<Duration> {
        let from = from.saturating_duration_since(begun).as_nanos() as u64;
        let after = self.calls.iter().filter(|call| call.called >= from);
        after.map(|call| Duration::from_nanos(call.returned - from)).min()
    }

    /// The longest time after `from` without an answer.
    pub fn longest_gap(&self, begun: Instant, from: Instant) -> Option<Duration> {
        let from = from.saturating_duration_since(begun).as_nanos() as u64;
        let mut returns: Vec<_> = self.calls.iter().map(|call| call.returned).collect();
        returns.retain(|returned| *returned >= from);
        returns.push(from);
        returns.sort_unstable();
        let gaps = returns.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().map(Duration::from_nanos)
    }
}

/// When a request was due, sent and answered.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// The beginning of the run.
    pub begun: Instant,
    pub due: Instant,
    pub called: Instant,
    pub returned: Instant,
}

/// The timestamps of a body; `None` if it is not what was asked for.
pub fn range(body: &[u8], n: u32, is_range: bool) -> Option<Range> {
    let (first, rest) = body.split_first_chunk::<16>()?;
    let range = Range { first: Timestamp::from_bytes(*first), count: n };
    range.first.index.checked_add(n.into())?;
    if is_range {
        return (rest == u64::from(n).to_be_bytes()).then_some(range);
    }
    let is_whole = body.len() == 16 * n as usize;
    let follows = |(bytes, timestamp): (&[u8], Timestamp)| bytes == timestamp.to_bytes();
    (is_whole && body.chunks(16).zip(range.timestamps()).all(follows)).then_some(range)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_body_is_what_was_asked_for_or_nothing() {
        let first = Timestamp { epoch: 7, index: 1 };
        let all = Range { first, count: 3 };
        let body: Vec<u8> = all.timestamps().flat_map(Timestamp::to_bytes).collect();
        assert_eq!(range(&body, 3, false), Some(all));
        assert_eq!(range(&body, 2, false), None);
        assert_eq!(range(&body[..47], 3, false), None);
        for at in 16..48 {
            let mut wrong = body.clone();
            wrong[at] ^= 1;
            assert_eq!(range(&wrong, 3, false), None, "{at}");
        }
        let mut short = body[..16].to_vec();
        short.extend(3_u64.to_be_bytes());
        assert_eq!(range(&short, 3, true), Some(all));
        assert_eq!(range(&short, 4, true), None);
        assert_eq!(range(b"", 1, false), None);
    }

    #[test]
    fn a_duplicate_is_found_and_the_first_answer_after_a_kill() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let times = |called, returned| Times {
            begun,
            due: at(called),
            called: at(called),
            returned: at(returned),
        };
        let of = |index| Range { first: Timestamp { epoch: 1, index }, count: 1 };
        let mut tally = Tally::one_of(1);
        assert!(!tally.check().unwrap());
        tally.add(times(0, 1), of(1));
        tally.add(times(4, 9), of(2));
        tally.add(times(6, 8), of(3));
        assert!(tally.check().unwrap());
        assert_eq!(tally.first_after(begun, at(5)), Some(Duration::from_millis(3)));
        assert_eq!(tally.first_after(begun, at(7)), None);
        assert_eq!(tally.longest_gap(begun, at(2)), Some(Duration::from_millis(6)));
        assert_eq!(tally.longest_gap(begun, at(9)), Some(Duration::ZERO));
        assert_eq!(tally.longest_gap(begun, at(10)), None);
        tally.add(times(10, 11), of(3));
        assert!(tally.check().is_err());
    }
}
