//! Transparent huge pages: the first staging buffer takes what its records need; the later ones,
//! and the chunks that are read from files, are on huge pages. Has a process of its own, as it
//! looks at the memory of all of it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stderr)] // A test says what it skipped.

#[path = "kit/fixture.rs"]
mod fixture;

use esker_disk::sim::SimDisk;
use esker_disk::{AlignedBuf, HugePages};
use esker_log::Log;
use fixture::{DIR, all, payload, payloads, small};

/// The transparent huge pages that this process has, in bytes.
fn huge() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let kib = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
    kib.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// The bytes in memory of mappings that may have no huge pages, as the first buffer.
fn never_huge() -> usize {
    let (mut resident, mut total) = (0, 0);
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        match line.split_once(':') {
            Some(("Rss", kib)) => resident = kib.trim().trim_end_matches(" kB").parse().unwrap(),
            Some(("VmFlags", flags)) if flags.contains(" nh") => total += resident,
            _ => {}
        }
    }
    total << 10
}

#[test]
fn the_first_buffer_takes_what_it_needs_and_later_ones_are_on_huge_pages() {
    let Some(page) = HugePages::page_size().filter(|page| *page <= 4 << 20) else {
        return eprintln!("SKIPPED: the kernel has no huge pages");
    };
    let used = "/sys/kernel/mm/transparent_hugepage/enabled";
    if !std::fs::read_to_string(used).is_ok_and(|used| used.contains("[madvise]")) {
        return eprintln!("SKIPPED: the kernel gives no transparent huge pages on request");
    }
    let disk = SimDisk::new(1);
    let mut options = small(&disk);
    options.segment_size = 16 << 20;
    options.buffer_size = 4 << 20;
    options.tail_cache = 4 << 20;
    let log = Log::builder(DIR).options(options).open().unwrap();
    for seq in 1..=300 {
        drop(log.append(payload(seq)).unwrap());
    }
    log.barrier().unwrap().blocking_wait().unwrap();
    assert_eq!(huge(), 0, "a log of 300 records");
    assert!(never_huge() > 0 && never_huge() < 1 << 20, "{} bytes", never_huge());

    let large = vec![7; 64 << 10];
    for _ in 0..512 {
        log.append(&large).unwrap().blocking_wait().unwrap();
    }
    if huge() == 0 && none_are_left(page) {
        return eprintln!("SKIPPED: the kernel found no huge page");
    }
    assert!(huge() >= 4 << 20, "{} bytes are on huge pages", huge());
    assert!(never_huge() < 1 << 20, "the first buffer was used again");
    let before = huge();
    let read = all(&log);
    // The kernel has pages for so little memory, as it had some for the buffers.
    assert!(huge() >= before + page, "{} bytes before and {} after reading", before, huge());
    assert_eq!(read[..300], payloads(1..=300));
    assert!(read[300..].iter().all(|(_, payload)| *payload == large));
    assert_eq!(read.len(), 812);
}

/// Whether memory that asks for huge pages gets none.
fn none_are_left(page: usize) -> bool {
    let mut memory = AlignedBuf::lazy_huge(page);
    memory.fill(1);
    huge() == 0
}
