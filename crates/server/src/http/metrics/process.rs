//! What the process uses, under the names that Prometheus has for every process.
//!
//! Where the system has no `/proc`, what is read from it is left out.

use std::fs;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::http::metrics::families::Families;

pub(crate) fn register(families: &mut Families) {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    families.counted_seconds("cpu", "Time of processors that the process used", cpu);
    if let Some(bytes) = resident() {
        families.bytes("resident_memory", "Memory of the process that is resident", bytes);
    }
    if let Some(files) = open_files() {
        families.gauge("open_fds", "Open files and connections of the process", files as f64);
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        families.gauge("max_fds", "The limit of open files and connections", limit as f64);
    }
    if let Some(start) = start() {
        let help = "When the process started, in seconds since 1970";
        families.seconds("start_time", help, start);
    }
}

/// Open files; `None` where the system does not say.
fn open_files() -> Option<u64> {
    let dir = "/proc/self/fd";
    // From Linux 6.2 on, without a look at each.
    match fs::metadata(dir).ok()?.len() {
        // The look opens one of its own.
        0 => Some((fs::read_dir(dir).ok()?.count() as u64).saturating_sub(1)),
        files => Some(files),
    }
}

/// Seconds since 1970; `None` where the system does not say.
fn start() -> Option<f64> {
    let (stat, system) = (fs::read_to_string("/proc/self/stat"), fs::read_to_string("/proc/stat"));
    start_in(&stat.ok()?, &system.ok()?)
}

fn start_in(stat: &str, system: &str) -> Option<f64> {
    /// Ticks of a second in files of `/proc`, whatever the kernel's own are.
    const TICKS: f64 = 100.0;
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    // The name of the program may have spaces and brackets. The state is the third field, and the
    // start the twenty-second.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: f64 = rest.split_whitespace().nth(19)?.parse().ok()?;
    Some(boot + ticks / TICKS)
}

/// Bytes of memory; `None` where the system does not say.
fn resident() -> Option<u64> {
    resident_in(&fs::read_to_string("/proc/self/status").ok()?)
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
    fn a_start_is_found_whatever_the_program_is_called() {
        let system = "cpu  1 2 3\nbtime 1700000000\nprocesses 9\n";
        let stat = "7 (a) R b) S 1 7 7 0 -1 4194304 1 0 0 0 3 4 0 0 20 0 9 0 12345 1 2 3\n";
        assert_eq!(start_in(stat, system), Some(1_700_000_123.45));
        assert_eq!(start_in("", system), None);
        assert_eq!(start_in(stat, "cpu  1\n"), None);
    }

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tesker\nVmHWM:\t   30000 kB\nVmRSS:\t   20048 kB\n";
        assert_eq!(resident_in(status), Some(20_048 * 1024));
        for other in ["", "VmRSS:", "VmRSS:\t1 MB", "VmRSS:\t18446744073709551615 kB"] {
            assert_eq!(resident_in(other), None, "{other}");
        }
    }
}
