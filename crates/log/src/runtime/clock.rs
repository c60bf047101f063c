//! The clocks of an engine: one that only runs, and the wall clock, which may be set at any time.
//!
//! Everything that is counted, timers and the ages of records, is counted on the first one. The
//! wall clock gives commits their times. A step of it is reported, so that an operator learns why
//! these times have one.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

#[cfg(target_os = "linux")]
const MONOTONIC: ClockId = ClockId::Boottime;
/// Elsewhere it may stop while the system is suspended.
#[cfg(not(target_os = "linux"))]
const MONOTONIC: ClockId = ClockId::Monotonic;

/// The shortest step of the wall clock that is reported, in milliseconds. A leap second is shorter.
pub(crate) const STEP_MIN_MS: u64 = 2_000;
/// Steps are reported at most this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The clocks of an engine.
#[derive(Debug)]
pub(crate) struct Clock {
    source: Source,
    /// How far the wall clock is ahead of the other one, as last reported, in milliseconds.
    ahead_ms: AtomicI64,
    /// The time at which a step was last reported.
    reported_at: Mutex<Option<Duration>>,
}

#[derive(Debug)]
enum Source {
    /// The time since the system started at which the engine was created.
    System(Duration),
    /// The time since then, in nanoseconds, and how far the wall clock is ahead of it, in
    /// milliseconds.
    Manual { elapsed: AtomicU64, ahead_ms: AtomicI64 },
}

impl Clock {
    /// The clocks of the system.
    pub(crate) fn system() -> Self {
        Self::new(Source::System(since_boot()))
    }

    /// Clocks that only [`Clock::advance`] and [`Clock::set_wall`] move. Both begin with 0.
    pub(crate) fn manual() -> Self {
        Self::new(Source::Manual { elapsed: AtomicU64::new(0), ahead_ms: AtomicI64::new(0) })
    }

    fn new(source: Source) -> Self {
        let clock = Self { source, ahead_ms: AtomicI64::new(0), reported_at: Mutex::new(None) };
        clock.ahead_ms.store(clock.ahead(), SeqCst);
        clock
    }

    pub(crate) fn is_manual(&self) -> bool {
        matches!(self.source, Source::Manual { .. })
    }

    /// Moves manual clocks forward.
    pub(crate) fn advance(&self, by: Duration) {
        if let Source::Manual { elapsed, .. } = &self.source {
            elapsed.fetch_add(by.as_nanos() as u64, SeqCst);
        }
    }

    /// Sets a manual wall clock, and not the other one.
    pub(crate) fn set_wall(&self, time: SystemTime) {
        if let Source::Manual { ahead_ms, .. } = &self.source {
            ahead_ms.store(ms_since_1970(time).saturating_sub(ms(self.now())), SeqCst);
        }
    }

    /// The time since the engine was created. Counts time in which the system is suspended.
    pub(crate) fn now(&self) -> Duration {
        match &self.source {
            Source::System(start) => since_boot().saturating_sub(*start),
            Source::Manual { elapsed, .. } => Duration::from_nanos(elapsed.load(SeqCst)),
        }
    }

    /// The wall clock in milliseconds since 1970, 0 before. Reports a step of it.
    pub(crate) fn wall_ms(&self) -> u64 {
        let (now, wall) = (self.now(), self.wall());
        let step = wall.saturating_sub(ms(now)).abs_diff(self.ahead_ms.load(SeqCst));
        if step >= STEP_MIN_MS {
            self.report_step();
        }
        wall.max(0).unsigned_abs()
    }

    /// The wall clock in milliseconds since 1970.
    fn wall(&self) -> i64 {
        match &self.source {
            Source::System(_) => ms_since_1970(SystemTime::now()),
            Source::Manual { ahead_ms, .. } => ms(self.now()).saturating_add(ahead_ms.load(SeqCst)),
        }
    }

    fn ahead(&self) -> i64 {
        self.wall().saturating_sub(ms(self.now()))
    }

    /// Reports how far the wall clock was set since the last report. Within [`REPORT_INTERVAL`] of
    /// that one it reports nothing, and a later call does.
    #[cold]
    fn report_step(&self) {
        let mut reported_at = self.reported_at.lock();
        let before = self.now();
        let step = self.ahead().saturating_sub(self.ahead_ms.load(SeqCst));
        let now = self.now();
        let took = u64::try_from(now.saturating_sub(before).as_millis()).unwrap_or(u64::MAX);
        // A thread that was interrupted between reading the two clocks saw no step.
        let is_step = step.unsigned_abs() >= STEP_MIN_MS.saturating_add(took);
        let is_due = reported_at.is_none_or(|last| now.saturating_sub(last) >= REPORT_INTERVAL);
        if is_step && is_due {
            *reported_at = Some(now);
            self.ahead_ms.fetch_add(step, SeqCst);
            drop(reported_at);
            let seconds = step / 1000;
            tracing::warn!(seconds, "wall clock was set; the ages of records do not follow it");
        }
    }
}

/// The time since the system started, suspended or not.
fn since_boot() -> Duration {
    let now = clock_gettime(MONOTONIC);
    let (seconds, nanoseconds) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970; below 0 before.
fn ms_since_1970(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => ms(since),
        Err(before) => -ms(before.duration()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// The seconds of all steps that were reported, and their number.
    #[derive(Default, Clone)]
    struct Reports(Arc<(AtomicI64, AtomicU64)>);

    impl Visit for Reports {
        fn record_i64(&mut self, field: &Field, value: i64) {
            assert_eq!(field.name(), "seconds");
            self.0.0.fetch_add(value, SeqCst);
            self.0.1.fetch_add(1, SeqCst);
        }

        fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
    }

    impl Subscriber for Reports {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }

        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn steps_of_the_wall_clock_are_reported_once_a_minute() {
        let reports = Reports::default();
        let seen = || (reports.0.0.load(SeqCst), reports.0.1.load(SeqCst));
        tracing::subscriber::with_default(reports.clone(), || {
            let clock = Clock::manual();
            let after = |seconds| {
                clock.advance(Duration::from_secs(seconds));
                (clock.wall_ms(), seen())
            };
            assert_eq!(after(3600), (3_600_000, (0, 0)), "no step");
            clock.set_wall(at(3601));
            assert_eq!(after(0), (3_601_000, (0, 0)), "as a leap second");
            clock.set_wall(at(7200));
            assert_eq!(after(0), (7_200_000, (3600, 1)));
            clock.set_wall(at(3600));
            assert_eq!(after(59), (3_659_000, (3600, 1)), "within the minute");
            assert_eq!(after(1), (3_660_000, (0, 2)), "a minute after the first report");
            clock.set_wall(UNIX_EPOCH - Duration::from_secs(40));
            assert_eq!(after(60), (20_000, (-3700, 3)));
            assert_eq!(after(600), (620_000, (-3700, 3)));
        });
    }

    #[test]
    fn the_clock_of_the_system_runs_and_has_no_step() {
        let reports = Reports::default();
        tracing::subscriber::with_default(reports.clone(), || {
            let clock = Clock::system();
            let (now, wall_ms) = (clock.now(), clock.wall_ms());
            assert!(now < Duration::from_secs(600) && wall_ms > 1_700_000_000_000);
            while clock.now() == now {}
        });
        assert_eq!(reports.0.1.load(SeqCst), 0);
    }
}
