//! Waiting for a thread that is about to finish something, and may have lost its processor.

use std::time::Duration;

/// A processor spends a few microseconds on these.
const SPINS: u32 = 128;
const SLEEP: Duration = Duration::from_micros(10);

/// Waits a moment, given how often the caller has looked already.
///
/// Sleeps rather than yields: a thread that yields may get its processor back only after a time
/// slice of another, some milliseconds later. One that slept gets it when its timer ends.
pub(crate) fn pause(looks: u32) {
    if looks < SPINS { std::hint::spin_loop() } else { std::thread::sleep(SLEEP) }
}
