//! Staging buffers on huge pages: whole pages, taken at opening. When there are too few, the error
//! names the command that reserves more.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stderr)] // A test says what it skipped.

#[path = "kit/fixture.rs"]
mod fixture;

use std::path::Path;

use esker_disk::HugePages;
use esker_disk::sim::SimDisk;
use esker_log::{InvalidOption, Log, OpenError, Options, Start};
use fixture::{DIR, all, append, payload, payloads, small};

/// The smallest log on huge pages; `None` where the kernel has none.
fn options(disk: &SimDisk) -> Option<(Options, usize)> {
    let Some(page) = HugePages::page_size().filter(|page| *page <= 64 << 20) else {
        eprintln!("SKIPPED: the kernel has no huge pages");
        return None;
    };
    let mut options = small(disk);
    options.huge_pages = true;
    options.buffer_size = page as u32;
    Some((options, page))
}

#[test]
fn buffers_that_are_not_whole_pages_are_refused_by_option_name() {
    let disk = SimDisk::new(1);
    let Some((options, page)) = options(&disk) else { return };
    for size in [8 << 10, page as u32 - 4096, page as u32 + 4096] {
        let mut options = options.clone();
        options.buffer_size = size;
        let error = Log::builder(DIR).options(options).open().unwrap_err();
        assert!(
            matches!(error, OpenError::InvalidOption(InvalidOption { option: "buffer_size", .. })),
            "{size}: {error}"
        );
        assert!(error.to_string().contains(&page.to_string()), "{error}");
    }
}

#[test]
fn too_few_huge_pages_fail_the_open_and_name_the_command() {
    let disk = SimDisk::new(1);
    let Some((mut options, page)) = options(&disk) else { return };
    // 64 GiB of staging.
    options.buffer_size = 64 << 20;
    options.buffers = 1024;
    if HugePages::reserve(64 << 20, 1025).is_ok() {
        return eprintln!("SKIPPED: so many huge pages are reserved here");
    }
    let error = Log::builder(DIR).options(options).open().unwrap_err();
    let OpenError::HugePages(cause) = &error else { unreachable!("{error}") };
    // The buffers, and the one that is being filled when all others wait.
    assert_eq!(cause.needed, 1025 * ((64 << 20) / page));
    assert!(cause.reserve >= cause.needed);
    let command = format!("`sysctl -w vm.nr_hugepages={}`", cause.reserve);
    assert!(error.to_string().contains(&command), "{error}");
    // Nothing was opened, or made.
    assert!(disk.files(Path::new(DIR)).is_err());
}

/// The huge pages that this process has, in bytes.
fn mine() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("HugetlbPages:"));
    kib.map_or(0, |kib| kib.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10)
}

/// Only where huge pages are reserved: `sysctl -w vm.nr_hugepages=8`.
#[test]
fn log_stages_records_on_huge_pages() {
    let disk = SimDisk::new(1);
    let Some((options, page)) = options(&disk) else { return };
    if let Err(why) = HugePages::reserve(page, 3) {
        return eprintln!("SKIPPED: {why}");
    }
    let log = Log::builder(DIR).options(options).open().unwrap();
    assert_eq!(mine(), 3 * page, "two buffers, and the one being filled");
    append(&log, 300);
    // A reader keeps what it was given, also from buffers that are used again.
    let kept = log.stream(Start::Oldest).unwrap().try_next().unwrap().unwrap();
    let large = vec![7; 1 << 20];
    log.append(&large).unwrap().blocking_wait().unwrap();
    for seq in 302..=2000 {
        drop(log.append(payload(seq)).unwrap());
    }
    log.barrier().unwrap().blocking_wait().unwrap();
    assert!(kept.iter().all(|record| record.payload == payload(record.seq.0)));
    log.close().unwrap();
    drop((log, kept));
    assert_eq!(mine(), 0, "what was taken is given back");
    let mut usual = small(&disk);
    usual.huge_pages = false;
    let log = Log::builder(DIR).options(usual).open().unwrap();
    let read = all(&log);
    assert_eq!(read[..300], payloads(1..=300));
    assert_eq!(read[300].1, large);
    assert_eq!(read[301..], payloads(302..=2000));
}
