//! Resource usage of the process: CPU time, memory, allocations.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::measure::allocations;

/// The counters at one time.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot {
    cpu: Duration,
    allocations: u64,
}

/// The usage between two snapshots, or the sum of several such spans.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceUse {
    pub cpu: Duration,
    pub allocations: u64,
    /// The peak resident memory in bytes; 0 where the system does not report it.
    pub resident: u64,
}

impl Snapshot {
    /// Reads the counters.
    pub fn now() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::try_from(cpu).unwrap_or_default();
        Self { cpu, allocations: allocations::count() }
    }

    /// Returns the usage since the snapshot.
    pub fn used(self) -> ResourceUse {
        let now = Self::now();
        ResourceUse {
            cpu: now.cpu.saturating_sub(self.cpu),
            allocations: now.allocations - self.allocations,
            resident: 0,
        }
    }
}

impl ResourceUse {
    /// Returns the sum.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            allocations: self.allocations + other.allocations,
            resident: self.resident.max(other.resident),
        }
    }
}

/// Resets the peak of resident memory, where the system supports it.
pub fn reset_peak() {
    // Linux: 5 resets VmHWM. Elsewhere, and where it is refused, the peak is that of the process.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Returns the peak of resident memory in bytes; 0 where the system does not report it.
pub fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}
