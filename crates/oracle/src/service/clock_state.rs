//! The view that an oracle has of time, for other threads to read.

use std::time::Duration;

use esker_raft::VoterClocks;
use parking_lot::Mutex;

use crate::clock::Step;

/// A report of the clock of an oracle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockReport {
    /// The time on the node's wall clock, in nanoseconds of Unix time.
    pub clock: u64,
    /// The last epoch that the node has applied.
    pub epoch: u64,
    /// The time since this process got that epoch; `None` if another process owns it.
    pub epoch_age: Option<Duration>,
    /// The largest difference between this node's clock and that of a voter that answered the last
    /// proof before this process proposed an epoch. It includes a round trip. `None` before that,
    /// and where there is no other voter.
    pub spread: Option<Duration>,
    /// The step of the clock when this process last proposed an epoch.
    pub step: Step,
    /// The highest age of an epoch that timestamps are issued of: a request that finds an older one
    /// waits for a new epoch.
    pub epoch_age_max: Duration,
    /// The epoch that would be proposed now.
    pub next_epoch: u64,
}

impl ClockReport {
    /// The most by which the epoch of a timestamp that is issued now may differ from the clocks of
    /// this node and of the voters that were compared. `None` for a node without an epoch of its
    /// own.
    pub fn uncertainty(&self) -> Option<Duration> {
        let is_used = self.epoch_age? <= self.epoch_age_max;
        let apart = |epoch| Duration::from_nanos(self.clock.abs_diff(epoch));
        let mut own = apart(self.epoch);
        if !is_used {
            // As far as a new epoch gets from the clock before it is replaced.
            own = own.min(apart(self.next_epoch).saturating_add(self.epoch_age_max));
        }
        Some(own.saturating_add(self.spread.unwrap_or_default()))
    }
}

/// The last step, and the last comparison of clocks.
#[derive(Debug)]
struct ClockObservation {
    step: Step,
    spread: Option<Duration>,
}

/// The clock of an oracle, which its issuer updates.
#[derive(Debug)]
pub(crate) struct ClockState(Mutex<ClockObservation>);

impl ClockState {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(ClockObservation { step: Step::None, spread: None }))
    }

    pub(crate) fn step(&self) -> Step {
        self.0.lock().step
    }

    pub(crate) fn spread(&self) -> Option<Duration> {
        self.0.lock().spread
    }

    /// Replaces the step of the clock. Returns the one before.
    pub(crate) fn replace_step(&self, step: Step) -> Step {
        std::mem::replace(&mut self.0.lock().step, step)
    }

    /// Compares the clocks of a proof.
    pub(crate) fn compare(&self, VoterClocks { own, others }: &VoterClocks) {
        let apart = others.iter().map(|other| Duration::from_nanos(other.abs_diff(*own)));
        self.0.lock().spread = apart.max();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_furthest_clock_counts() {
        let state = ClockState::new();
        assert_eq!(state.spread(), None);
        state.compare(&VoterClocks { own: 100, others: vec![103, 91] });
        assert_eq!(state.spread(), Some(Duration::from_nanos(9)));
        state.compare(&VoterClocks { own: 100, others: Vec::new() });
        assert_eq!(state.spread(), None);
        let epoch_age = Some(Duration::from_nanos(4));
        let spread = Some(Duration::from_nanos(9));
        let report = ClockReport {
            clock: 100,
            epoch: 96,
            epoch_age,
            spread,
            step: Step::None,
            epoch_age_max: Duration::from_nanos(20),
            next_epoch: 100,
        };
        assert_eq!(report.uncertainty(), Some(Duration::from_nanos(13)));
        assert_eq!(ClockReport { epoch_age: None, ..report }.uncertainty(), None);
        let behind = ClockReport { epoch: 120, spread: None, ..report };
        assert_eq!(behind.uncertainty(), Some(Duration::from_nanos(20)));
    }

    /// The uncertainty of an idle leader grew for as long as no request came.
    #[test]
    fn the_uncertainty_of_an_idle_leader_is_that_of_the_next_epoch() {
        let nanos = Duration::from_nanos;
        let idle = ClockReport {
            clock: 10_000,
            epoch: 1000,
            epoch_age: Some(nanos(9000)),
            spread: Some(nanos(3)),
            step: Step::None,
            epoch_age_max: nanos(20),
            next_epoch: 10_000,
        };
        assert_eq!(idle.uncertainty(), Some(nanos(23)));
        let in_use = ClockReport { clock: 1020, epoch_age: Some(nanos(20)), ..idle };
        assert_eq!(in_use.uncertainty(), Some(nanos(23)));
        // A clock that is not followed yet, and one behind the epoch.
        let ahead = ClockReport { next_epoch: 4000, ..idle };
        assert_eq!(ahead.uncertainty(), Some(nanos(6023)));
        let behind = ClockReport { clock: 400, next_epoch: 1001, ..idle };
        assert_eq!(behind.uncertainty(), Some(nanos(603)));
    }
}
