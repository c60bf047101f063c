//! Waiting for a thread that is about to finish something, and may have lost its processor.

use std::time::Duration;

/// The spins before the first sleep. A processor spends a few microseconds on them.
const SPINS_MAX: u32 = 128;
const SLEEP_TIME: Duration = Duration::from_micros(10);

/// Spins first, then sleeps.
///
/// It does not yield: a thread that yields may get its processor back only after a time slice of
/// another thread, which was seen to take 3 to 4 ms. One that sleeps gets it when its timer ends.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    spins: u32,
}

impl Backoff {
    /// Spins once. `false` if the wait took so long that the caller must sleep instead.
    pub(crate) fn spin(&mut self) -> bool {
        let spins = self.spins < SPINS_MAX;
        if spins {
            self.spins += 1;
            std::hint::spin_loop();
        }
        spins
    }

    /// Sleeps. The caller holds no lock.
    pub(crate) fn sleep(&self) {
        std::thread::sleep(SLEEP_TIME);
    }
}
