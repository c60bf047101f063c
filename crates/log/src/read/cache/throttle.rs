//! Throttles loads of the read cache while commits are running.

use std::time::{Duration, Instant};

/// While commits are running, the pause after a load is this many times the load's duration.
const PAUSE_PER_LOAD: u32 = 3;
/// After this time without a commit the disk counts as free.
const FREE_AFTER: Duration = Duration::from_millis(10);
/// The longest pause, however slow the disk is.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Decides when the next load may begin.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// The durable watermark when it was last seen to advance.
    watermark: u64,
    moved: Option<Instant>,
    not_before: Option<Instant>,
    /// A moving average of the load time.
    load: Duration,
}

impl Throttle {
    /// Returns how long the next load has to wait.
    pub(super) fn pause(&mut self, watermark: u64) -> Duration {
        let now = Instant::now();
        if self.watermark != watermark {
            // The first call cannot know when the watermark advanced.
            self.moved = (self.watermark != 0).then_some(now);
            self.watermark = watermark;
        }
        if self.moved.is_none_or(|moved| now - moved > FREE_AFTER) {
            self.not_before = None;
            return Duration::ZERO;
        }
        let start = self.not_before.map_or(now, |at| at.max(now));
        self.not_before = Some(start + self.load * (1 + PAUSE_PER_LOAD));
        (start - now).min(PAUSE_MAX)
    }

    pub(super) fn ended(&mut self, took: Duration) {
        self.load = if self.load.is_zero() { took } else { (self.load * 7 + took) / 8 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_not_throttled_while_no_commit_runs() {
        let mut throttle = Throttle::default();
        for _ in 0..5 {
            assert_eq!(throttle.pause(7), Duration::ZERO);
            throttle.ended(Duration::from_secs(60));
        }
        throttle.pause(8);
        assert_eq!(throttle.pause(9), PAUSE_MAX);
        // The last commit was a while ago.
        throttle.moved = throttle.moved.and_then(|moved| moved.checked_sub(2 * FREE_AFTER));
        assert_eq!(throttle.pause(9), Duration::ZERO);
        assert_eq!(throttle.not_before, None);
    }

    #[test]
    fn pause_after_each_load_exceeds_its_duration_while_commits_run() {
        let load = Duration::from_secs(60);
        let mut throttle = Throttle { watermark: 1, ..Throttle::default() };
        throttle.ended(load);
        assert_eq!(throttle.pause(2), Duration::ZERO);
        for watermark in 3..6 {
            let before = throttle.not_before;
            assert_eq!(throttle.pause(watermark), PAUSE_MAX);
            assert_eq!(throttle.not_before, before.map(|at| at + load * (1 + PAUSE_PER_LOAD)));
        }
    }
}
