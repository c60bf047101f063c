//! How long the timed part of a work lasts.

use std::time::{Duration, Instant};

use esker_kv::{Policy, Store};

use super::arguments::KvBenchArguments;

/// The length without flags, in seconds.
const SECONDS: f64 = 3.0;
/// The least that a policy is measured for where policies are compared. Fewer periods or syncs
/// would leave the slow puts out of the figures.
pub const PERIODS: u32 = 20;
pub const SYNCS: u64 = 100;
const PUTS: u64 = 10_000;
const TIME: Duration = Duration::from_secs(1);
/// A caller looks at the syncs once in this many calls.
const CHECK_EVERY: u64 = 64;

/// When the timed part is over.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// Each caller has made this many calls.
    Calls(u64),
    Deadline(Instant),
    /// Each caller has made this many calls, the deadline has passed, and the log has synced this
    /// many times.
    Enough {
        calls: u64,
        deadline: Instant,
        syncs: u64,
    },
}

impl Until {
    /// The timed part that begins at `begin`.
    pub fn of(
        arguments: &KvBenchArguments,
        policy: Policy,
        store: &Store,
        puts: bool,
        begin: Instant,
    ) -> Self {
        let each = u64::from(arguments.writers) * u64::from(arguments.batch);
        if let Some(count) = arguments.count {
            return Self::Calls((count / each).max(1));
        }
        if arguments.seconds.is_none() && arguments.compares() && puts {
            let periods = match policy {
                Policy::Periodic(period) => period * PERIODS,
                _ => Duration::ZERO,
            };
            let syncs = if policy == Policy::OsBuffered { 0 } else { SYNCS };
            return Self::Enough {
                calls: PUTS.div_ceil(each),
                deadline: begin + periods.max(TIME),
                syncs: store.stats().log.syncs + syncs,
            };
        }
        let seconds = arguments.seconds.unwrap_or(SECONDS);
        Self::Deadline(begin + Duration::from_secs_f64(seconds))
    }

    /// Whether a caller ends after so many calls. `now` is known where the call was timed.
    pub fn is_over(&self, store: &Store, done: u64, now: Option<Instant>) -> bool {
        match *self {
            Self::Calls(calls) => done >= calls,
            Self::Deadline(deadline) => now.is_some_and(|now| now >= deadline),
            Self::Enough { calls, deadline, syncs } => {
                done >= calls
                    && now.is_some_and(|now| now >= deadline)
                    && done.is_multiple_of(CHECK_EVERY)
                    && store.stats().log.syncs >= syncs
            }
        }
    }
}
