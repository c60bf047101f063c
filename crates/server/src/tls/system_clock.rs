//! The time for rustls.

use std::time::{Duration, SystemTime};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// The clock of the system. A time before 1970 is shown as 1970: rustls panics there, while it
/// holds the lock that all connections take.
#[derive(Debug)]
pub(crate) struct SystemClock;

impl TimeProvider for SystemClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Some(UnixTime::since_unix_epoch(since.unwrap_or(Duration::ZERO)))
    }
}
