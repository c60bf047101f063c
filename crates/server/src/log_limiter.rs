//! A limit of repeated log lines: of refused changes of the cluster, of connections, of requests
//! without a timestamp.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The time in which the same event gets no second line.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// The most events that are distinguished at a time. More get no line.
const EVENTS_MAX: usize = 32;

/// An event: its kind, the node that it is about, and its reason.
type Event = (&'static str, Option<u64>, String);

/// The events that were logged in the last [`REPEAT_INTERVAL`].
#[derive(Debug, Default)]
pub(crate) struct LogLimiter(Mutex<VecDeque<(Event, Instant)>>);

impl LogLimiter {
    /// Returns whether this event is to be logged now, and counts it as logged.
    pub(crate) fn should_log(&self, kind: &'static str, node: Option<u64>, why: &str) -> bool {
        let mut logged = self.0.lock();
        logged.retain(|(_, at)| at.elapsed() < REPEAT_INTERVAL);
        debug_assert!(logged.len() <= EVENTS_MAX, "events are bounded");
        let event = (kind, node, why.to_owned());
        if logged.len() == EVENTS_MAX || logged.iter().any(|(known, _)| *known == event) {
            return false;
        }
        logged.push_back((event, Instant::now()));
        true
    }
}

/// A limit of log lines of one kind, whatever they say.
#[derive(Debug, Default)]
pub(crate) struct LineLimiter(Mutex<LastLine>);

/// The last line, and the number of lines since then that were not logged.
#[derive(Debug, Default)]
struct LastLine {
    at: Option<Instant>,
    suppressed: u64,
}

impl LineLimiter {
    /// Returns whether a line is to be logged now, which is once in each interval: the number of
    /// lines before it that were not.
    pub(crate) fn should_log(&self, interval: Duration) -> Option<u64> {
        let mut last = self.0.lock();
        if last.at.is_some_and(|at| at.elapsed() < interval) {
            last.suppressed += 1;
            return None;
        }
        last.at = Some(Instant::now());
        Some(std::mem::take(&mut last.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_logged_once_and_their_number_is_bounded() {
        let limiter = LogLimiter::default();
        assert!(limiter.should_log("add", Some(3), "removed"));
        assert!(!limiter.should_log("add", Some(3), "removed"));
        assert!(limiter.should_log("add", Some(4), "removed"));
        let new = (0..1000).filter(|at| limiter.should_log("add", None, &at.to_string())).count();
        assert_eq!(new, EVENTS_MAX - 2);
    }

    #[test]
    fn lines_within_the_interval_are_counted() {
        let limiter = LineLimiter::default();
        let hour = Duration::from_secs(3600);
        assert_eq!(limiter.should_log(hour), Some(0));
        assert_eq!([limiter.should_log(hour), limiter.should_log(hour)], [None; 2]);
        assert_eq!(limiter.should_log(Duration::ZERO), Some(2));
    }
}
