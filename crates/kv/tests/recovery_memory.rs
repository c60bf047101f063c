//! The memory that opening takes is bounded, however large the log is. A process of its own,
//! because its memory is measured.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::path::Path;

use esker_kv::{Options, Policy, Store};

const MIB: u64 = 1 << 20;

/// The memory of this process, and the most that it had since the last call of [`forget_peak`].
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// Overwrites few keys until the log has this many bytes.
fn write(dir: &Path, bytes: u64) {
    let mut options = Options::default();
    (options.log.policy, options.clean, options.cache_bytes) = (Policy::OsBuffered, false, 0);
    let store = Store::builder(dir).options(options).open().unwrap();
    let keys = store.keyspace();
    for n in 0..bytes / 10_000 {
        drop(keys.put((n % 20).to_be_bytes(), vec![n as u8; 10_000]).unwrap());
    }
    store.close().unwrap();
    std::fs::remove_file(dir.join("checkpoint")).unwrap();
}

#[test]
fn opening_takes_much_less_memory_than_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = 256 * MIB;
    write(dir.path(), bytes);
    forget_peak();
    let (before, _) = memory();
    let store = Store::builder(dir.path()).cache_bytes(0).open().unwrap();
    assert_eq!(store.stats().replayed, bytes / 10_000);
    let (_, peak) = memory();
    store.close().unwrap();
    // Two segments at the most, however many there are.
    let taken = peak.saturating_sub(before);
    assert!(taken < 100 * MIB, "{taken} bytes of memory for a log of {bytes}");
}
