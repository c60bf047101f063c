//! The environment of a node beside disk and network: time since boot and random numbers. A
//! simulation replaces both.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[cfg(target_os = "linux")]
const BOOT_CLOCK: ClockId = ClockId::Boottime;
/// Elsewhere it may stop while the system is suspended: see the guarantees.
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: ClockId = ClockId::Monotonic;

/// The time since the system started, suspended or not.
pub(crate) fn since_boot() -> Duration {
    #[cfg(feature = "simulation")]
    if let Some(elapsed) = simulated::since_boot() {
        return elapsed;
    }
    let now = clock_gettime(BOOT_CLOCK);
    let (seconds, nanoseconds) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

/// Returns whether this thread is in a node of a simulation, where other threads may do nothing and
/// time stops while a task runs.
pub(crate) fn is_simulated() -> bool {
    #[cfg(feature = "simulation")]
    return simulated::is_on();
    #[cfg(not(feature = "simulation"))]
    false
}

#[cfg(not(feature = "simulation"))]
pub(crate) type NodeRng = rand::rngs::ThreadRng;
#[cfg(not(feature = "simulation"))]
pub(crate) use rand::rng as node_rng;
#[cfg(feature = "simulation")]
pub(crate) use simulated::{NodeRng, node_rng};

#[cfg(feature = "simulation")]
pub(crate) mod simulated {
    use std::cell::RefCell;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use rand::rngs::{SmallRng, ThreadRng};
    use rand::{Rng, SeedableRng, TryRng};
    use tokio::time::Instant;

    /// The random numbers of a process, and the start time of its system.
    #[derive(Debug, Clone)]
    pub(crate) struct Environment {
        random: Arc<Mutex<SmallRng>>,
        booted: Instant,
    }

    thread_local! {
        static CURRENT_ENVIRONMENT: RefCell<Option<Environment>> = const { RefCell::new(None) };
    }

    impl Environment {
        pub(crate) fn new(seed: u64, booted: Instant) -> Self {
            Self { random: Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))), booted }
        }

        /// Sets the process that this thread is in; `None` for no process.
        pub(crate) fn set_for_thread(process: Option<&Self>) {
            CURRENT_ENVIRONMENT.set(process.cloned());
        }
    }

    pub(super) fn is_on() -> bool {
        CURRENT_ENVIRONMENT.with_borrow(Option::is_some)
    }

    pub(super) fn since_boot() -> Option<Duration> {
        CURRENT_ENVIRONMENT.with_borrow(|current| Some(current.as_ref()?.booted.elapsed()))
    }

    /// Random numbers of the simulation, or of the system.
    #[derive(Debug)]
    pub struct NodeRng(Result<Arc<Mutex<SmallRng>>, ThreadRng>);

    pub(crate) fn node_rng() -> NodeRng {
        let current = |current: &Option<Environment>| Some(Arc::clone(&current.as_ref()?.random));
        let simulated = CURRENT_ENVIRONMENT.with_borrow(current);
        NodeRng(simulated.ok_or_else(rand::rng))
    }

    impl TryRng for NodeRng {
        type Error = Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Infallible> {
            Ok(match &mut self.0 {
                Ok(simulated) => simulated.lock().next_u32(),
                Err(system) => system.next_u32(),
            })
        }

        fn try_next_u64(&mut self) -> Result<u64, Infallible> {
            Ok(match &mut self.0 {
                Ok(simulated) => simulated.lock().next_u64(),
                Err(system) => system.next_u64(),
            })
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
            match &mut self.0 {
                Ok(simulated) => simulated.lock().fill_bytes(bytes),
                Err(system) => system.fill_bytes(bytes),
            }
            Ok(())
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::Command;

    use super::*;

    /// The variable of a process for which the system was suspended for as many seconds.
    const SUSPENDED_SECONDS_ENV: &str = "ESKER_TEST_SUSPENDED_SECONDS";

    /// A leader must count the time for which its system was suspended. A process in another time
    /// namespace sees what it would see then. Where none may be made, this looks at the name of
    /// the clock only.
    #[test]
    fn the_clock_runs_while_the_system_is_suspended() {
        if let Ok(seconds) = std::env::var(SUSPENDED_SECONDS_ENV) {
            assert!(since_boot() >= Duration::from_secs(seconds.parse().unwrap()));
            return;
        }
        assert_eq!(BOOT_CLOCK, ClockId::Boottime);
        let (seconds, this) = ("1000000000", std::env::current_exe().unwrap());
        let mut suspended = Command::new("unshare");
        suspended.args(["--user", "--map-root-user", "--time", "--boottime", seconds]);
        suspended.arg(this).args(["--exact", "--nocapture"]).env(SUSPENDED_SECONDS_ENV, seconds);
        suspended.arg("base::environment::tests::the_clock_runs_while_the_system_is_suspended");
        // A test that fails ends with 101. Without a namespace it does not begin, and a filter that
        // fits no test ends as if it had passed.
        if let Ok(ended) = suspended.output() {
            let has_run = String::from_utf8_lossy(&ended.stdout).contains("1 passed");
            assert_ne!(ended.status.code(), Some(101), "{ended:?}");
            assert!(has_run || !ended.status.success(), "it ran no test: {ended:?}");
        }
    }
}
