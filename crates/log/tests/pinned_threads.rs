//! An engine whose threads stay on one processor, and a processor that is not there.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "kit/fixture.rs"]
mod fixture;

use std::fs;

use esker_disk::sim::SimDisk;
use esker_log::{Engine, InvalidOption, Log, OpenError};
use fixture::{DIR, all, append, block_on, payload, payloads, small};
use rustix::thread::{CpuSet, sched_getaffinity};

/// Where the threads of an engine may run, each.
fn homes() -> Vec<String> {
    let mut homes = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        // A thread may have ended in between.
        let Ok(name) = fs::read_to_string(task.join("comm")) else { continue };
        let Ok(status) = fs::read_to_string(task.join("status")) else { continue };
        if ["esker-commit", "esker-maintain", "esker-timer"].contains(&name.trim()) {
            let home = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            homes.push(home.unwrap().trim().to_owned());
        }
    }
    homes
}

/// The one test here, because it looks at all threads of the process.
#[test]
fn pinned_engine_threads_stay_on_their_processor() {
    let mine = sched_getaffinity(None).unwrap();
    let last = (0..CpuSet::MAX_CPU).rev().find(|n| mine.is_set(*n)).unwrap();
    let none = (0..CpuSet::MAX_CPU).find(|n| !mine.is_set(*n)).unwrap();
    let disk = SimDisk::new(1);
    let mut options = small(&disk);

    for nowhere in [none, CpuSet::MAX_CPU, usize::MAX] {
        options.pin = Some(nowhere);
        let error = Log::builder(DIR).options(options.clone()).open().unwrap_err();
        assert!(
            matches!(error, OpenError::InvalidOption(InvalidOption { option: "pin", .. })),
            "{error}"
        );
        assert!(error.to_string().contains(&nowhere.to_string()), "{error}");
        let refused = Engine::pinned(1, nowhere).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    }
    assert!(homes().is_empty(), "{:?}", homes());

    options.pin = Some(last);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    append(&log, 10);
    for seq in 11..=50 {
        block_on(log.append(payload(seq)).unwrap()).unwrap();
    }
    assert_eq!(
        homes(),
        vec![last.to_string(); 6],
        "four for commits, one for maintenance, one for timers"
    );
    assert_eq!(all(&log), payloads(1..=50));
    log.close().unwrap();
    // The thread that opened it may go where it could before.
    let still = sched_getaffinity(None).unwrap();
    assert_eq!(still.count(), mine.count());

    options.engine = Some(Engine::manual());
    let error = Log::builder(DIR).options(options).open().unwrap_err();
    assert!(
        matches!(error, OpenError::InvalidOption(InvalidOption { option: "pin", .. })),
        "{error}"
    );
}
