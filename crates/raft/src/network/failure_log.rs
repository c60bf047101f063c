//! Failures of connections as log lines: one line for each peer and reason in an interval, with the
//! number of failures that got none.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The interval in which the same failure of the same peer gets one line.
const LINE_INTERVAL: Duration = Duration::from_secs(60);
/// Pairs of a peer and a reason that are distinguished. All others together are one.
const FAILURE_KINDS_MAX: usize = 64;

/// A peer and a reason; `None` for all pairs that are not distinguished.
type FailureKind = Option<(Option<IpAddr>, String)>;

/// The time of the last line of a failure, and the number of failures without a line since.
#[derive(Debug)]
struct LoggedFailure {
    at: Instant,
    suppressed: u64,
}

/// The failures that got a line lately.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<HashMap<FailureKind, LoggedFailure>>);

impl FailureLog {
    /// Records a failure. If it gets a line, returns the number of failures of its kind that got
    /// none since the last line.
    pub(crate) fn record(&self, peer: Option<IpAddr>, reason: &str, now: Instant) -> Option<u64> {
        let mut logged = self.0.lock();
        let mut kind = Some((peer, reason.to_owned()));
        if !logged.contains_key(&kind) && logged.len() >= FAILURE_KINDS_MAX {
            logged.retain(|_, logged| now.duration_since(logged.at) < LINE_INTERVAL);
            if logged.len() >= FAILURE_KINDS_MAX {
                kind = None;
            }
        }
        match logged.get_mut(&kind) {
            Some(last) if now.duration_since(last.at) < LINE_INTERVAL => {
                last.suppressed += 1;
                None
            }
            last => {
                let suppressed = last.map_or(0, |last| last.suppressed);
                logged.insert(kind, LoggedFailure { at: now, suppressed: 0 });
                debug_assert!(logged.len() <= FAILURE_KINDS_MAX + 1, "the log is bounded");
                Some(suppressed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(last: u8) -> Option<IpAddr> {
        Some(Ipv4Addr::new(127, 0, 0, last).into())
    }

    #[test]
    fn a_failure_has_one_line_in_an_interval_and_then_its_count() {
        let (refusals, now) = (FailureLog::default(), Instant::now());
        assert_eq!(refusals.record(peer(1), "cluster", now), Some(0));
        for _ in 0..5 {
            assert_eq!(refusals.record(peer(1), "cluster", now), None);
        }
        assert_eq!(refusals.record(peer(1), "version", now), Some(0));
        assert_eq!(refusals.record(peer(2), "cluster", now), Some(0));
        assert_eq!(refusals.record(peer(1), "cluster", now + LINE_INTERVAL), Some(5));
        assert_eq!(refusals.record(peer(1), "cluster", now + LINE_INTERVAL), None);
    }

    /// A peer that varies what it sends gets no line for each.
    #[test]
    fn lines_are_bounded_whatever_comes() {
        let (refusals, now) = (FailureLog::default(), Instant::now());
        let lines =
            (0..10_000).filter(|at| refusals.record(peer(1), &at.to_string(), now).is_some());
        assert_eq!(lines.count(), FAILURE_KINDS_MAX + 1);
        assert!(refusals.0.lock().len() <= FAILURE_KINDS_MAX + 1);
        // Those that are over make room.
        assert_eq!(refusals.record(peer(1), "new", now + LINE_INTERVAL), Some(0));
        assert!(refusals.0.lock().len() <= 2);
    }
}
