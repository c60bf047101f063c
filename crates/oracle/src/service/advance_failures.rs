//! Advances of the epoch that failed, and deadlines that were missed, in a row.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

/// The interval between two warnings that the epoch did not advance.
const WARN_INTERVAL: Duration = Duration::from_secs(1);

/// Failures since the last success.
#[derive(Debug, Default)]
pub(crate) struct AdvanceFailures {
    /// Deadlines in a row by which this leader got no epoch that it asked for.
    missed: u32,
    /// The start of the next deadline: the first request for an epoch after a success, or the end
    /// of the deadline before.
    deadline_began: Option<Instant>,
    /// Advances in a row that failed.
    failed: u32,
    warned_at: Option<Instant>,
}

impl AdvanceFailures {
    /// The deadlines in a row that were missed.
    pub(crate) fn missed(&self) -> u32 {
        self.missed
    }

    /// Records that an epoch is asked for: its deadline begins to run, unless one does.
    pub(crate) fn begin(&mut self) {
        self.deadline_began.get_or_insert_with(Instant::now);
    }

    /// Records an advance without an answer in time. A deadline is missed when it has passed: where
    /// followers do not store what they are sent, openraft refuses proposals as soon as the one
    /// before them is late.
    pub(crate) fn time_out(&mut self, patience: Duration) {
        let began = *self.deadline_began.get_or_insert_with(Instant::now);
        if began.elapsed() >= patience {
            self.missed = self.missed.saturating_add(1);
            self.deadline_began = Some(Instant::now());
        }
    }

    /// Records an answer in time, whatever it is: no deadline runs.
    pub(crate) fn answer(&mut self) {
        (self.missed, self.deadline_began) = (0, None);
    }

    /// Records an advance that succeeded.
    pub(crate) fn succeed(&mut self) {
        self.failed = 0;
    }

    /// Records an advance that failed, in the log.
    pub(crate) fn fail(&mut self, error: &impl Display) {
        self.failed = self.failed.saturating_add(1);
        let (in_a_row, missed) = (self.failed, self.missed);
        // A leader that is deposed fails as often as requests come.
        if self.warned_at.is_none_or(|warned| warned.elapsed() >= WARN_INTERVAL) {
            self.warned_at = Some(Instant::now());
            tracing::warn!(%error, in_a_row, missed, "the epoch did not advance");
        } else {
            tracing::debug!(%error, in_a_row, missed, "the epoch did not advance");
        }
    }
}
