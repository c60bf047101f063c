//! What the process uses, under the names that Prometheus has for every process.

use rustix::time::{ClockId, clock_gettime};

use crate::http::metrics::families::Families;

pub(crate) fn register(families: &mut Families) {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    families.counted_seconds("cpu", "Time of processors that the process used", cpu);
    if let Some(bytes) = resident() {
        families.bytes("resident_memory", "Memory of the process that is resident", bytes);
    }
}

/// Bytes of memory; `None` where the system does not say.
fn resident() -> Option<u64> {
    resident_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tesker\nVmHWM:\t   30000 kB\nVmRSS:\t   20048 kB\n";
        assert_eq!(resident_in(status), Some(20_048 * 1024));
        for other in ["", "VmRSS:", "VmRSS:\t1 MB", "VmRSS:\t18446744073709551615 kB"] {
            assert_eq!(resident_in(other), None, "{other}");
        }
    }
}
