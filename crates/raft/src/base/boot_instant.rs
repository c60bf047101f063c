//! A clock that runs while the system is suspended.

use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

use crate::base::environment::since_boot;

/// The time since the system started, suspended or not.
///
/// A leader that counts on a lease has to count the time in which its system was suspended.
/// Arithmetic saturates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// The instant of tokio's clock at this time, or a later one: tokio's clock may stop while the
    /// system is suspended.
    pub(crate) fn to_tokio(self) -> tokio::time::Instant {
        let now = tokio::time::Instant::now();
        let until = self - <Self as openraft::Instant>::now();
        now.checked_add(until).unwrap_or(now + Duration::from_secs(1 << 30))
    }
}

impl openraft::Instant for BootInstant {
    fn now() -> Self {
        Self(since_boot())
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;

    fn add(self, more: Duration) -> Self {
        Self(self.0.saturating_add(more))
    }
}

impl AddAssign<Duration> for BootInstant {
    fn add_assign(&mut self, more: Duration) {
        *self = *self + more;
    }
}

impl Sub<Duration> for BootInstant {
    type Output = Self;

    fn sub(self, less: Duration) -> Self {
        Self(self.0.saturating_sub(less))
    }
}

impl SubAssign<Duration> for BootInstant {
    fn sub_assign(&mut self, less: Duration) {
        *self = *self - less;
    }
}

impl Sub for BootInstant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use openraft::Instant;

    use super::*;

    #[test]
    fn arithmetic_has_no_end() {
        let now = BootInstant::now();
        assert!(BootInstant::now() >= now);
        assert_eq!((now + Duration::from_secs(2)) - now, Duration::from_secs(2));
        assert_eq!(now - (now + Duration::from_secs(2)), Duration::ZERO);
        assert_eq!(now - Duration::MAX, BootInstant(Duration::ZERO));
        assert!((now + Duration::MAX).to_tokio() > tokio::time::Instant::now());
        let soon = (now + Duration::from_secs(9)).to_tokio() - tokio::time::Instant::now();
        assert!(soon <= Duration::from_secs(9) && soon > Duration::from_secs(8), "{soon:?}");
    }
}
