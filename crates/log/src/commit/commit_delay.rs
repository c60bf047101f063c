//! Adaptive commit delay: wait briefly so that callers woken by the last commit join the next one.
//!
//! A commit wakes its callers, and in most programs they append again at once. A commit that starts
//! immediately misses them. The callers then split into two groups that take turns: each commit
//! carries half of them, and each caller waits for two commits.
//!
//! So the next commit waits until as many callers are back as were woken, at most a quarter of the
//! last commit's time. After a wait without effect (the callers do not come back, or there are too
//! many) the delay is skipped for one commit, then three, and so on up to 255.
//!
//! Pure: the caller supplies all durations.

use std::time::Duration;

/// Shorter waits are skipped.
const DELAY_MIN: Duration = Duration::from_micros(20);
/// The longest wait, however slow the disk is.
const DELAY_MAX: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub(crate) struct CommitDelay {
    /// The number of staged records that ends the wait, and the longest wait.
    awaited: Option<(u32, Duration)>,
    /// Whether a thread waits.
    waiting: bool,
    /// The last wait reached its target: the callers come back together.
    regrouping: bool,
    /// Commits to skip before the next attempt, and how many were skipped after the last wait
    /// without effect.
    skip: u8,
    skipped: u8,
}

impl CommitDelay {
    /// A commit completed after `took` and woke `callers`, with `staged` records staged now.
    pub(crate) fn completed(&mut self, staged: u32, callers: usize, took: Duration) {
        self.awaited = None;
        let target = staged.saturating_add(u32::try_from(callers).unwrap_or(u32::MAX));
        let wait = (took / 4).min(DELAY_MAX);
        // A single caller has no others to wait for.
        if callers == 0 || target < 2 || wait < DELAY_MIN {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.awaited = Some((target, wait));
    }

    /// Returns how long the next commit waits at most, with this many records staged. The calling
    /// thread then waits, until [`CommitDelay::end`].
    pub(crate) fn begin(&mut self, staged: u32) -> Option<Duration> {
        let (target, wait) = self.awaited?;
        self.waiting = staged < target;
        if !self.waiting {
            self.end(staged);
        }
        self.waiting.then_some(wait)
    }

    /// Whether a thread waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Whether a thread waits and may stop.
    pub(crate) fn is_met(&self, staged: u32) -> bool {
        self.waiting && self.awaited.is_none_or(|(target, _)| staged >= target)
    }

    /// Whether the callers come back together. A commit beside the one in flight would only split
    /// them.
    pub(crate) fn is_regrouping(&self) -> bool {
        self.regrouping
    }

    /// Ends the wait.
    pub(crate) fn end(&mut self, staged: u32) {
        self.waiting = false;
        if let Some((target, _)) = self.awaited.take() {
            self.regrouping = staged >= target;
            let longer = self.skipped.saturating_mul(2).saturating_add(1);
            self.skipped = if self.regrouping { 0 } else { longer };
            self.skip = self.skipped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_micros(200);

    #[test]
    fn waits_until_as_many_are_back_as_were_woken() {
        let mut delay = CommitDelay::default();
        delay.completed(3, 10, TOOK);
        assert_eq!(delay.begin(3), Some(TOOK / 4));
        assert!(delay.is_waiting() && !delay.is_met(12) && delay.is_met(13));
        delay.end(13);
        assert!(!delay.is_waiting() && delay.is_regrouping());
        delay.completed(0, 13, TOOK);
        assert_eq!(delay.begin(13), None, "they were back before the committer checked");
        assert!(delay.is_regrouping());
    }

    #[test]
    fn waits_seldom_where_that_is_in_vain() {
        let mut delay = CommitDelay::default();
        let mut commits_between = Vec::new();
        let mut commits = 0;
        while commits_between.len() < 10 {
            commits += 1;
            delay.completed(0, 10, TOOK);
            if delay.begin(2).is_some() {
                delay.end(2);
                assert!(!delay.is_regrouping());
                commits_between.push(commits - 1);
                commits = 0;
            }
        }
        assert_eq!(commits_between, [0, 1, 3, 7, 15, 31, 63, 127, 255, 255]);
    }

    #[test]
    fn no_delay_for_one_caller_or_for_none_or_on_a_fast_disk() {
        let mut delay = CommitDelay::default();
        for (staged, callers, took) in [(0, 1, TOOK), (5, 0, TOOK), (5, 5, DELAY_MIN * 3)] {
            delay.completed(staged, callers, took);
            assert_eq!(delay.begin(staged), None);
        }
        delay.completed(1, 1, Duration::from_secs(9));
        assert_eq!(delay.begin(1), Some(DELAY_MAX));
    }
}
