//! Times the consecutive calls of one caller.

use std::time::{Duration, Instant};

/// Callers that do not wait record the latency of one in this many calls: reading the clock costs
/// as much as a call.
pub const TIMED_EVERY: u64 = 16;

/// A clock of one caller. A call begins when the previous one ended, so that one reading of the
/// clock ends a call and begins the next.
#[derive(Debug)]
pub struct CallClock {
    every: u64,
    calls: u64,
    last: Instant,
    deadline: Option<Instant>,
}

impl CallClock {
    /// Starts the first call. One call in `every` is timed, the first one included.
    pub fn start(every: u64) -> Self {
        Self { every, calls: 0, last: Instant::now(), deadline: None }
    }

    /// As [`CallClock::start`], for calls that end with the deadline.
    pub fn with_deadline(every: u64, deadline: Option<Instant>) -> Self {
        Self { deadline, ..Self::start(every) }
    }

    /// Returns the number of calls that have ended.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Ends a call, and passes its time to `record` if it was timed. Returns the time of day where
    /// the clock was read: after a timed call, and before one.
    pub fn end_call(&mut self, record: impl FnOnce(Duration)) -> Option<Instant> {
        let is_timed = self.calls.is_multiple_of(self.every);
        self.calls += 1;
        if !is_timed && !self.calls.is_multiple_of(self.every) {
            return None;
        }
        let now = Instant::now();
        if is_timed {
            record(now - self.last);
        }
        self.last = now;
        Some(now)
    }

    /// As [`CallClock::end_call`]. Returns whether the deadline has passed.
    pub fn is_over(&mut self, record: impl FnOnce(Duration)) -> bool {
        let now = self.end_call(record);
        now.zip(self.deadline).is_some_and(|(now, deadline)| now >= deadline)
    }

    /// Starts the next call now: the time since the last one belongs to none.
    pub fn restart(&mut self) {
        self.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_so_many_is_timed() {
        for (every, calls, timed) in [(1, 5, 5), (16, 1, 1), (16, 16, 1), (16, 33, 3)] {
            let mut clock = CallClock::start(every);
            let mut times = 0;
            for _ in 0..calls {
                clock.end_call(|_| times += 1);
            }
            assert_eq!((times, clock.calls()), (timed, calls), "{every}");
        }
    }

    #[test]
    fn the_deadline_is_checked_where_the_clock_is_read() {
        let mut clock = CallClock::with_deadline(16, Some(Instant::now()));
        let over: Vec<_> = (0..17).map(|_| clock.is_over(drop)).collect();
        let read: Vec<_> = (0..17).filter(|call| over[*call]).collect();
        assert_eq!(read, [0, 15, 16]);
        assert!(!CallClock::start(1).is_over(drop));
    }
}
