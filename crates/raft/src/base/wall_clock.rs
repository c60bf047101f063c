//! The wall clock of a node.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// A wall clock: the time in nanoseconds since the beginning of 1970. It may step. Clones read the
/// same clock.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl WallClock {
    /// A clock that is read with this function.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time that the clock shows now.
    pub fn now(&self) -> u64 {
        self.0()
    }
}

/// The system's clock. Before 1970 it shows 0.
impl Default for WallClock {
    fn default() -> Self {
        let since = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanoseconds = move || since().map_or(0, |since| since.as_nanos());
        Self::new(move || u64::try_from(nanoseconds()).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WallClock").field(&self.now()).finish()
    }
}
