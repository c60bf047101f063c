//! Metrics of the process, under the names that Prometheus has for every process.
//!
//! Metrics that are read from `/proc` are left out where the system has none.

use std::fs;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::http::metrics::families::Families;

pub(crate) fn register(families: &mut Families) {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    families.seconds_counter("cpu", "Time of processors that the process used", cpu);
    if let Some(bytes) = resident_bytes() {
        families.bytes("resident_memory", "Memory of the process that is resident", bytes);
    }
    if let Some(files) = open_files() {
        families.gauge("open_fds", "Open files and connections of the process", files as f64);
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        families.gauge("max_fds", "The limit of open files and connections", limit as f64);
    }
    if let Some(start) = start_seconds() {
        let help = "When the process started, in seconds since 1970";
        families.seconds("start_time", help, start);
    }
}

/// Returns the number of open files; `None` where the system does not say.
fn open_files() -> Option<u64> {
    let dir = "/proc/self/fd";
    // From Linux 6.2 on, this is the number of files.
    match fs::metadata(dir).ok()?.len() {
        // Reading the folder opens one of them.
        0 => (fs::read_dir(dir).ok()?.count() as u64).checked_sub(1),
        files => Some(files),
    }
}

/// Returns the start of the process, in seconds since 1970; `None` where the system does not say.
fn start_seconds() -> Option<f64> {
    let (stat, system) = (fs::read_to_string("/proc/self/stat"), fs::read_to_string("/proc/stat"));
    parse_start(&stat.ok()?, &system.ok()?)
}

fn parse_start(stat: &str, system: &str) -> Option<f64> {
    /// The ticks of a second in files of `/proc`, whatever those of the kernel are.
    const TICKS_PER_SECOND: f64 = 100.0;
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    // The name of the program may have spaces and brackets. The state is the third field, and the
    // start the twenty-second.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: f64 = rest.split_whitespace().nth(19)?.parse().ok()?;
    Some(boot + ticks / TICKS_PER_SECOND)
}

/// Returns the bytes of resident memory; `None` where the system does not say.
fn resident_bytes() -> Option<u64> {
    parse_resident(&fs::read_to_string("/proc/self/status").ok()?)
}

fn parse_resident(status: &str) -> Option<u64> {
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
        assert_eq!(parse_start(stat, system), Some(1_700_000_123.45));
        assert_eq!(parse_start("", system), None);
        assert_eq!(parse_start(stat, "cpu  1\n"), None);
    }

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tesker\nVmHWM:\t   30000 kB\nVmRSS:\t   20048 kB\n";
        assert_eq!(parse_resident(status), Some(20_048 * 1024));
        for other in ["", "VmRSS:", "VmRSS:\t1 MB", "VmRSS:\t18446744073709551615 kB"] {
            assert_eq!(parse_resident(other), None, "{other}");
        }
    }
}
