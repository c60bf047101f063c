//! The error of a request for timestamps.

use std::fmt;

use esker_raft::{Member, NodeError};

/// The most timestamps of one request, with any
/// [`OracleOptions::max_timestamps`](crate::OracleOptions::max_timestamps).
pub const COUNT_MAX: u32 = 65_536;

/// The error of a request for timestamps.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OracleError {
    /// Too many requests wait.
    Busy,
    /// 0, or more than [`OracleOptions::max_timestamps`](crate::OracleOptions::max_timestamps).
    Count(u32),
    /// Another node leads, or none does.
    NotLeader {
        /// The node that leads, as far as this one knows.
        leader: Option<(u64, Member)>,
    },
    /// The node cannot prove that it leads, or cannot advance the epoch.
    Unavailable(NodeError),
    /// No answer came within [`OracleOptions::patience`](crate::OracleOptions::patience).
    TimedOut,
    /// The cluster has had no epoch yet, and none of the clocks is in
    /// [`CREDIBLE_CLOCKS`](crate::CREDIBLE_CLOCKS). The first epoch is taken when one was set
    /// right.
    Clock {
        /// The time on this node's clock, in nanoseconds of Unix time: 0 before 1970, and the
        /// highest number after 2554.
        clock: u64,
    },
    /// An operator has epochs follow a clock that is after the end of
    /// [`CREDIBLE_CLOCKS`](crate::CREDIBLE_CLOCKS). Epochs go on without it.
    ClockTooHigh {
        /// The time on it, as in [`OracleError::Clock`].
        clock: u64,
    },
    /// There is no epoch after the last one, for good. An earlier version followed a clock to the
    /// highest number.
    NoEpochLeft,
    /// The oracle was dropped, or its task has ended.
    Stopped,
    /// The oracle has stopped because of a mistake in its code.
    Internal {
        /// The sentence that does not hold.
        invariant: &'static str,
    },
}

/// The year that a clock shows, about.
fn year(clock: u64) -> String {
    const NANOS_PER_YEAR: u64 = 31_556_952_000_000_000;
    match clock {
        0 => "1970 or before".into(),
        u64::MAX => "2554 or after".into(),
        _ => (1970 + clock / NANOS_PER_YEAR).to_string(),
    }
}

impl fmt::Display for OracleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("too many requests are waiting"),
            Self::Count(count) => {
                write!(f, "{count} timestamps: none, or more than a request may ask for")
            }
            Self::NotLeader { leader: Some((node, _)) } => {
                write!(f, "this node does not lead; node {node} does")
            }
            Self::NotLeader { leader: None } => f.write_str("no node leads"),
            Self::Unavailable(_) => f.write_str("no timestamp can be issued now"),
            Self::TimedOut => f.write_str("there was no answer in time"),
            Self::Clock { clock } => write!(
                f,
                "the clock of this node shows the year {}, and the first epoch of a cluster is taken \
                 from a clock from 2020 to 2200: set it right, and timestamps are issued",
                year(*clock),
            ),
            Self::ClockTooHigh { clock } => write!(
                f,
                "the clock of this node shows the year {}, and epochs follow none after 2200, since \
                 they could not be taken back: set it right",
                year(*clock),
            ),
            Self::NoEpochLeft => f.write_str(
                "the last epoch is 2^64 - 1, and there is none after it: an earlier version followed \
                 a clock that showed a time after 2554; found a new cluster",
            ),
            Self::Stopped => f.write_str("the oracle has stopped"),
            Self::Internal { invariant } => {
                write!(f, "the oracle has stopped: internal error: this does not hold: {invariant}")
            }
        }
    }
}

impl std::error::Error for OracleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unavailable(error) => Some(error),
            _ => None,
        }
    }
}

impl From<NodeError> for OracleError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::NotLeader { leader } => Self::NotLeader { leader },
            error => Self::Unavailable(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::CREDIBLE_CLOCKS;

    #[test]
    fn a_clock_that_is_refused_is_shown_by_its_year() {
        let said = |clock| OracleError::Clock { clock }.to_string();
        assert!(said(0).contains("the year 1970 or before, and"), "{}", said(0));
        assert!(said(0).contains("from 2020 to 2200: set it right"), "{}", said(0));
        assert!(said(u64::MAX).contains("2554 or after"), "{}", said(u64::MAX));
        assert!(said(CREDIBLE_CLOCKS.start - 1).contains("2019"));
        let high = OracleError::ClockTooHigh { clock: CREDIBLE_CLOCKS.end }.to_string();
        assert!(high.contains("the year 2200, and"), "{high}");
    }
}
