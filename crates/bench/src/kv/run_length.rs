//! How long the timed part of a work lasts.

use std::time::Duration;

use esker_kv::{Policy, Store};

use super::store_arguments::KvBenchArguments;

/// The length without flags, in seconds.
const SECONDS: f64 = 3.0;
/// The least that a policy is measured for where policies are compared. Fewer periods or syncs
/// would leave the slow puts out of the figures. A mode with fewer syncs is fitted to no model.
pub const PERIODS_MIN: u32 = 20;
pub const SYNCS_MIN: u64 = 100;
const PUTS_MIN: u64 = 10_000;
const TIMED_PART_MIN: Duration = Duration::from_secs(1);
/// A caller checks once in this many calls whether its time is over.
pub const CHECK_EVERY: u64 = 64;

/// When the timed part is over.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// Each caller has made this many calls.
    Calls(u64),
    Elapsed(Duration),
    /// Each caller has made this many calls, the time has passed, and the log has synced this many
    /// times.
    Enough {
        calls: u64,
        time: Duration,
        syncs: u64,
    },
}

impl Until {
    /// Plans the timed part of a work.
    pub fn new(arguments: &KvBenchArguments, policy: Policy, store: &Store, puts: bool) -> Self {
        let each = u64::from(arguments.writers) * u64::from(arguments.batch);
        if let Some(count) = arguments.count {
            return Self::Calls((count / each).max(1));
        }
        if arguments.seconds.is_none() && arguments.compares() && puts {
            let periods = match policy {
                Policy::Periodic(period) => period * PERIODS_MIN,
                _ => Duration::ZERO,
            };
            let syncs = if policy == Policy::OsBuffered { 0 } else { SYNCS_MIN };
            return Self::Enough {
                calls: PUTS_MIN.div_ceil(each),
                time: periods.max(TIMED_PART_MIN),
                syncs: store.stats().log.syncs + syncs,
            };
        }
        let seconds = arguments.seconds.unwrap_or(SECONDS);
        Self::Elapsed(Duration::from_secs_f64(seconds))
    }

    /// Whether a caller ends after `done` calls. The time since the start is known where the call
    /// was timed.
    pub fn is_over(&self, store: &Store, done: u64, elapsed: Option<Duration>) -> bool {
        match *self {
            Self::Calls(calls) => done >= calls,
            Self::Elapsed(time) => elapsed.is_some_and(|elapsed| elapsed >= time),
            Self::Enough { calls, time, syncs } => {
                done >= calls
                    && elapsed.is_some_and(|elapsed| elapsed >= time)
                    && done.is_multiple_of(CHECK_EVERY)
                    && store.stats().log.syncs >= syncs
            }
        }
    }
}
