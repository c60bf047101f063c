//! The requests of a connection, counted and timed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use esker_oracle::Range;
use esker_oracle::history::{Call, check};

use crate::measure::figure::Verdict;
use crate::measure::latency::Latencies;
use esker_command::exit::{Failure, Outcome};
use esker_command::output::counted;

/// The most calls of a run that are recorded, and the fewest that have room.
const CALLS_MAX: u64 = 50_000_000;
const CALLS_MIN: u64 = 1_000_000;
/// Bytes for a call: its record, while lists of records grow and are joined, and its check.
const CALL_BYTES: u64 = 160;
/// A caller takes room for so many calls at a time.
const GRANT_MIN: u64 = 8;
const GRANT_MAX: u64 = 4096;

/// The room for records of calls, which all callers of a run share. Clones share it.
#[derive(Debug, Clone)]
pub struct CallBudget(Arc<AtomicU64>);

impl CallBudget {
    /// As many calls as half of the available memory has room for, within bounds.
    pub fn of_memory() -> Self {
        let calls = available_memory().map_or(CALLS_MIN, |bytes| bytes / 2 / CALL_BYTES);
        Self::new(calls.clamp(CALLS_MIN, CALLS_MAX))
    }

    fn new(calls: u64) -> Self {
        Self(Arc::new(AtomicU64::new(calls)))
    }

    /// Takes room for so many calls, or for those that are left.
    fn take(&self, wanted: u64) -> u64 {
        let left = self.0.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(wanted)));
        left.unwrap_or_default().min(wanted)
    }
}

/// The calls of one caller.
#[derive(Debug)]
pub struct Recorder {
    budget: CallBudget,
    calls: Vec<Call>,
    /// Calls that there is room for.
    granted: usize,
    /// Calls that there was no room for.
    unrecorded: u64,
}

impl Recorder {
    pub fn new(budget: &CallBudget) -> Self {
        Self { budget: budget.clone(), calls: Vec::new(), granted: 0, unrecorded: 0 }
    }

    pub fn record(&mut self, call: Call) {
        if self.calls.len() == self.granted {
            let more = (self.calls.len() as u64).clamp(GRANT_MIN, GRANT_MAX);
            self.granted += self.budget.take(more) as usize;
        }
        if self.calls.len() < self.granted {
            self.calls.push(call);
        } else {
            self.unrecorded += 1;
        }
    }

    pub fn merge(&mut self, other: Self) {
        self.calls.extend(other.calls);
        self.unrecorded += other.unrecorded;
    }

    /// Checks that all timestamps are unique and in order.
    pub fn check(&self) -> HistoryCheck {
        let violation = check(&self.calls).err().map(|found| found.to_string());
        let is_whole = self.unrecorded == 0 && !self.calls.is_empty();
        let verdict = match violation {
            Some(_) => Verdict::Wrong,
            None => Verdict::right_if(is_whole),
        };
        HistoryCheck { verdict, unrecorded: self.unrecorded, violation }
    }
}

/// The result of checking a history.
#[derive(Debug)]
pub struct HistoryCheck {
    pub verdict: Verdict,
    /// Calls that were not recorded.
    pub unrecorded: u64,
    violation: Option<String>,
}

impl HistoryCheck {
    /// The line for people.
    pub fn text(&self) -> String {
        match (self.verdict, self.unrecorded) {
            (Verdict::Right, _) => "unique and in order\n".into(),
            (Verdict::Wrong, _) => "NOT unique and in order\n".into(),
            (Verdict::Unchecked, 0) => "the order was not checked: there was no call\n".into(),
            (Verdict::Unchecked, more) => {
                let calls = counted(more, "call");
                format!("the order was not checked: {calls} had no room to be recorded\n")
            }
        }
    }

    /// Fails if there is a violation. To be called when the figure was printed.
    pub fn outcome(self) -> Outcome {
        self.violation.map_or(Ok(()), |violation| Err(Failure::failed(violation)))
    }
}

fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// The most bytes of an answer.
pub const ANSWER_BYTES_MAX: usize = (16 << 16) + 4096;

/// The head of an answer.
#[derive(Debug)]
pub struct AnswerHead {
    pub status: u16,
    /// The address of the leader, of a node that does not lead.
    pub leader: Option<String>,
}

/// The requests of a connection, or of all of them.
#[derive(Debug)]
pub struct Tally {
    pub latencies: Latencies,
    pub calls: Recorder,
    /// The requests without timestamps, by the class of failure.
    pub failed: BTreeMap<String, u64>,
}

impl Tally {
    pub fn new(budget: &CallBudget) -> Self {
        let (latencies, calls) = (Latencies::new(), Recorder::new(budget));
        Self { latencies, calls, failed: BTreeMap::new() }
    }

    /// Records an answer. `due` is when the request should have been sent.
    pub fn add(&mut self, times: Times, range: Range) {
        let Times { begun, due, called, returned } = times;
        self.latencies.add(returned.saturating_duration_since(due));
        let since = |at: Instant| at.saturating_duration_since(begun).as_nanos() as u64;
        self.calls.record(Call { called: since(called), returned: since(returned), range });
    }

    pub fn fail(&mut self, class: impl Into<String>) {
        *self.failed.entry(class.into()).or_default() += 1;
    }

    pub fn merge(&mut self, other: Self) {
        self.latencies.merge(&other.latencies);
        self.calls.merge(other.calls);
        for (class, count) in other.failed {
            *self.failed.entry(class).or_default() += count;
        }
    }

    /// How long after `from` the first timestamps came that were asked for after it.
    pub fn first_after(&self, begun: Instant, from: Instant) -> Option<Duration> {
        let from = from.saturating_duration_since(begun).as_nanos() as u64;
        let after = self.calls.calls.iter().filter(|call| call.called >= from);
        after.map(|call| Duration::from_nanos(call.returned - from)).min()
    }

    /// The longest time after `from` without an answer.
    pub fn longest_gap(&self, begun: Instant, from: Instant) -> Option<Duration> {
        let from = from.saturating_duration_since(begun).as_nanos() as u64;
        let mut returns: Vec<_> = self.calls.calls.iter().map(|call| call.returned).collect();
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

#[cfg(test)]
mod tests {
    use esker_oracle::Timestamp;

    use super::*;

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
        let mut tally = Tally::new(&CallBudget::new(9));
        assert_eq!(tally.calls.check().verdict, Verdict::Unchecked);
        tally.add(times(0, 1), of(1));
        tally.add(times(4, 9), of(2));
        tally.add(times(6, 8), of(3));
        assert_eq!(tally.calls.check().verdict, Verdict::Right);
        assert_eq!(tally.first_after(begun, at(5)), Some(Duration::from_millis(3)));
        assert_eq!(tally.first_after(begun, at(7)), None);
        assert_eq!(tally.longest_gap(begun, at(2)), Some(Duration::from_millis(6)));
        assert_eq!(tally.longest_gap(begun, at(9)), Some(Duration::ZERO));
        assert_eq!(tally.longest_gap(begun, at(10)), None);
        tally.add(times(10, 11), of(3));
        let checked = tally.calls.check();
        assert_eq!(checked.verdict, Verdict::Wrong);
        assert!(checked.outcome().is_err());
    }

    fn call(index: u64) -> Call {
        let range = Range { first: Timestamp { epoch: 1, index }, count: 1 };
        Call { called: index * 2, returned: index * 2 + 1, range }
    }

    /// Each caller had the same small share, and one that was faster than the others ran out of it.
    #[test]
    fn one_caller_may_use_the_room_of_all() {
        let budget = CallBudget::new(100_000);
        let (mut fast, mut slow) = (Recorder::new(&budget), Recorder::new(&budget));
        slow.record(call(1));
        (2..90_000).for_each(|index| fast.record(call(index)));
        fast.merge(slow);
        let checked = fast.check();
        assert_eq!((checked.verdict, checked.unrecorded), (Verdict::Right, 0));
    }

    /// Calls without room to be recorded were reported as wrong ones: both were not verified.
    #[test]
    fn a_history_without_room_is_unchecked_and_not_wrong() {
        let budget = CallBudget::new(20);
        let mut recorder = Recorder::new(&budget);
        (1..=21).for_each(|index| recorder.record(call(index)));
        let checked = recorder.check();
        assert_eq!((checked.verdict, checked.unrecorded), (Verdict::Unchecked, 1));
        let keys = (checked.verdict.is_checked(), checked.verdict.is_right());
        assert_eq!(keys, (false, false));
        assert!(checked.text().contains("1 call had no room"), "{}", checked.text());
        assert!(checked.outcome().is_ok());
        // A violation counts, also among a part of the calls.
        let mut recorder = Recorder::new(&CallBudget::new(2));
        [3, 3, 4].into_iter().for_each(|index| recorder.record(call(index)));
        let checked = recorder.check();
        assert_eq!((checked.verdict.is_checked(), checked.verdict.is_right()), (true, false));
        assert!(checked.outcome().is_err());
    }

    #[test]
    fn room_has_bounds() {
        let CallBudget(left) = CallBudget::of_memory();
        assert!((CALLS_MIN..=CALLS_MAX).contains(&left.load(Relaxed)));
    }
}
