//! What a node takes from the system beside disk and network: time and chance. In a simulation it
//! gives them.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
/// Elsewhere it may stop while the system is suspended: see the guarantees.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The time since the system started, suspended or not.
pub(crate) fn since_boot() -> Duration {
    #[cfg(feature = "simulation")]
    if let Some(elapsed) = simulated::since_boot() {
        return elapsed;
    }
    let now = clock_gettime(CLOCK);
    let (seconds, nanoseconds) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

/// Whether this thread is in a node of a simulation, where other threads may do nothing and time
/// stands still while a task runs.
pub(crate) fn is_simulated() -> bool {
    #[cfg(feature = "simulation")]
    return simulated::is_on();
    #[cfg(not(feature = "simulation"))]
    false
}

#[cfg(not(feature = "simulation"))]
pub(crate) type Chance = rand::rngs::ThreadRng;
#[cfg(not(feature = "simulation"))]
pub(crate) use rand::rng as chance;
#[cfg(feature = "simulation")]
pub(crate) use simulated::{Chance, chance};

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

    /// Of one process: its random numbers, and when its system started.
    #[derive(Debug, Clone)]
    pub(crate) struct Surroundings {
        random: Arc<Mutex<SmallRng>>,
        booted: Instant,
    }

    thread_local! {
        static NODE: RefCell<Option<Surroundings>> = const { RefCell::new(None) };
    }

    impl Surroundings {
        pub(crate) fn new(seed: u64, booted: Instant) -> Self {
            Self { random: Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))), booted }
        }

        /// This thread is in this process, or in none.
        pub(crate) fn on_this_thread(node: Option<&Self>) {
            NODE.set(node.cloned());
        }
    }

    pub(super) fn is_on() -> bool {
        NODE.with_borrow(Option::is_some)
    }

    pub(super) fn since_boot() -> Option<Duration> {
        NODE.with_borrow(|node| node.as_ref().map(|node| node.booted.elapsed()))
    }

    /// Random numbers of the simulation, or of the system.
    #[derive(Debug)]
    pub struct Chance(Result<Arc<Mutex<SmallRng>>, ThreadRng>);

    pub(crate) fn chance() -> Chance {
        let simulated = NODE.with_borrow(|node| node.as_ref().map(|node| Arc::clone(&node.random)));
        Chance(simulated.ok_or_else(rand::rng))
    }

    impl TryRng for Chance {
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

    /// Set in a process for which the system was suspended so long.
    const SUSPENDED: &str = "ESKER_TEST_SUSPENDED_SECONDS";

    /// A leader must count the time for which its system was suspended. A process in another time
    /// namespace sees what it would see then. Where none may be made, this looks at the name of
    /// the clock only.
    #[test]
    fn the_clock_runs_while_the_system_is_suspended() {
        if let Ok(seconds) = std::env::var(SUSPENDED) {
            assert!(since_boot() >= Duration::from_secs(seconds.parse().unwrap()));
            return;
        }
        assert_eq!(CLOCK, ClockId::Boottime);
        let (seconds, this) = ("1000000000", std::env::current_exe().unwrap());
        let mut suspended = Command::new("unshare");
        suspended.args(["--user", "--map-root-user", "--time", "--boottime", seconds]);
        suspended.arg(this).args(["--exact", "--nocapture"]).env(SUSPENDED, seconds);
        suspended.arg("base::surroundings::tests::the_clock_runs_while_the_system_is_suspended");
        // A test that fails ends with 101. Without a namespace it does not begin, and a filter that
        // fits no test ends as if it had passed.
        if let Ok(ended) = suspended.output() {
            let has_run = String::from_utf8_lossy(&ended.stdout).contains("1 passed");
            assert_ne!(ended.status.code(), Some(101), "{ended:?}");
            assert!(has_run || !ended.status.success(), "it ran no test: {ended:?}");
        }
    }
}
