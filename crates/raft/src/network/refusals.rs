//! Failures of connections, as log lines: one for each peer and reason in an interval, and how many
//! there were without a line since.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long the same failure of the same peer gets no other line.
const INTERVAL: Duration = Duration::from_secs(60);
/// Peers and reasons that are distinguished. The others together are one.
const KINDS_MAX: usize = 64;

/// A peer and a reason; `None` for all that are not distinguished.
type Kind = Option<(Option<IpAddr>, String)>;

/// When a failure got its line, and how many had none since.
#[derive(Debug)]
struct Logged {
    at: Instant,
    silent: u64,
}

/// The failures of late.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<Kind, Logged>>);

impl Refusals {
    /// How many failures of this kind got no line since the last that did, if this one gets a line.
    pub(crate) fn line(&self, peer: Option<IpAddr>, reason: &str, now: Instant) -> Option<u64> {
        let mut logged = self.0.lock();
        let mut kind = Some((peer, reason.to_owned()));
        if !logged.contains_key(&kind) && logged.len() >= KINDS_MAX {
            logged.retain(|_, logged| now.duration_since(logged.at) < INTERVAL);
            if logged.len() >= KINDS_MAX {
                kind = None;
            }
        }
        match logged.get_mut(&kind) {
            Some(last) if now.duration_since(last.at) < INTERVAL => {
                last.silent += 1;
                None
            }
            last => {
                let silent = last.map_or(0, |last| last.silent);
                logged.insert(kind, Logged { at: now, silent: 0 });
                Some(silent)
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
        let (refusals, now) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.line(peer(1), "cluster", now), Some(0));
        for _ in 0..5 {
            assert_eq!(refusals.line(peer(1), "cluster", now), None);
        }
        assert_eq!(refusals.line(peer(1), "version", now), Some(0));
        assert_eq!(refusals.line(peer(2), "cluster", now), Some(0));
        assert_eq!(refusals.line(peer(1), "cluster", now + INTERVAL), Some(5));
        assert_eq!(refusals.line(peer(1), "cluster", now + INTERVAL), None);
    }

    /// A peer that varies what it sends gets no line for each.
    #[test]
    fn lines_are_bounded_whatever_comes() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let lines = (0..10_000).filter(|at| refusals.line(peer(1), &at.to_string(), now).is_some());
        assert_eq!(lines.count(), KINDS_MAX + 1);
        assert!(refusals.0.lock().len() <= KINDS_MAX + 1);
        // Those that are over make room.
        assert_eq!(refusals.line(peer(1), "new", now + INTERVAL), Some(0));
        assert!(refusals.0.lock().len() <= 2);
    }
}
