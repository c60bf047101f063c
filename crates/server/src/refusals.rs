//! What was refused, and logged of late: changes of the cluster, and connections.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long the same refusal gets no other line.
const INTERVAL: Duration = Duration::from_secs(60);
/// Refusals that are distinguished.
const KINDS_MAX: usize = 32;

/// What was asked for, of which node, and why it was refused.
type Kind = (&'static str, Option<u64>, String);

/// The refusals that were logged lately.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<VecDeque<(Kind, Instant)>>);

impl Refusals {
    /// Whether this refusal was not logged of late. From now on it was.
    pub(crate) fn is_new(&self, change: &'static str, node: Option<u64>, why: &str) -> bool {
        let mut logged = self.0.lock();
        logged.retain(|(_, at)| at.elapsed() < INTERVAL);
        let kind = (change, node, why.to_owned());
        if logged.len() == KINDS_MAX || logged.iter().any(|(known, _)| *known == kind) {
            return false;
        }
        logged.push_back((kind, Instant::now()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_new_once_and_there_are_not_too_many() {
        let refusals = Refusals::default();
        assert!(refusals.is_new("add", Some(3), "removed"));
        assert!(!refusals.is_new("add", Some(3), "removed"));
        assert!(refusals.is_new("add", Some(4), "removed"));
        let new = (0..1000).filter(|at| refusals.is_new("add", None, &at.to_string())).count();
        assert_eq!(new, KINDS_MAX - 2);
    }
}
