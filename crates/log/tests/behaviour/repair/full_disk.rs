//! A corrupt log on a disk that is full of it.
//!
//! Guards: a repair that finds no room for what it quarantines, beside a reserve.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::path::Path;
use std::sync::Arc;

use esker_disk::sim::SimDisk;
use esker_log::{AppendError, Log, Options, ReadError, ReadOptions, repair, verify_with};

use crate::fixture::{DIR, driven, payload};

/// Bug: `repair` said to make room, and so did truncation, which needs a log that is not corrupt.
///
/// And: where there was room for a part of the repair, the report had only the rest.
#[test]
fn a_corrupt_log_that_fills_its_disk_is_repaired_in_the_reserve() {
    for extra in (0..60).step_by(3) {
        repaired_with(extra * 4096);
    }
}

/// Bug: a repair that began again copied the same bytes under another name, and each further
/// attempt on a full disk did so again.
#[test]
fn a_repair_that_begins_again_keeps_corrupt_bytes_once() {
    for extra in 0..60 {
        let (disk, _, _) = corrupt_log(extra * 4096);
        let repaired = repair(DIR, ReadOptions::on(Arc::new(disk.clone()))).unwrap();
        let mut kept: Vec<_> =
            repaired.quarantined.iter().filter_map(|range| range.kept_in.clone()).collect();
        kept.sort_unstable();
        let quarantine = Path::new(DIR).join("quarantine");
        let files = disk.files(&quarantine).unwrap();
        let files: Vec<_> = files.iter().map(|file| quarantine.join(file)).collect();
        assert_eq!(files, kept, "{extra} blocks");
    }
}

/// A log with two corrupt segments, beside which so many bytes are free, and its last record.
fn corrupt_log(extra: u64) -> (SimDisk, Options, u64) {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(2 << 20));
    let (mut options, _) = driven(&disk);
    options.reserve = Some(512 << 10);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let last = loop {
        let seq = log.accepted().0 + 1;
        match log.append(payload(seq)).and_then(|ticket| Ok(ticket.blocking_wait()?)) {
            Ok(_) => {}
            Err(AppendError::NoSpace { .. }) => break seq - 1,
            Err(error) => panic!("{error:?}"),
        }
    };
    log.close().unwrap();
    drop(log);
    // Another program took the rest.
    disk.set_capacity(Some(disk.used() + extra));
    let segment = Path::new(DIR).join("00000000000000000001.seg");
    disk.overwrite(&segment, 30_000, &[0xaa; 5000]).unwrap();
    let third = Path::new(DIR).join("00000000000000000003.seg");
    disk.overwrite(&third, 9_000, &[0xaa; 40_000]).unwrap();
    (disk, options, last)
}

/// Repairs such a log, and checks what is lost against the report.
fn repaired_with(extra: u64) {
    let (disk, options, last) = corrupt_log(extra);
    let read = ReadOptions::on(Arc::new(disk.clone()));
    assert!(!verify_with(DIR, read.clone(), |_| {}).unwrap().corruption.is_empty());
    let repaired = repair(DIR, read.clone()).unwrap();
    assert!(!repaired.quarantined.is_empty());
    assert!(verify_with(DIR, read, |_| {}).unwrap().corruption.is_empty());
    disk.set_capacity(Some(disk.used() + (1 << 20)));
    let log = Log::builder(DIR).options(options).open().unwrap();
    assert_eq!(log.durable().0, last);
    let lost: u64 = repaired.quarantined.iter().map(|range| range.to.0 - range.from.0).sum();
    assert!(lost > 0 && lost < 100, "{lost}");
    let kept: Vec<_> = (1..=last)
        .filter(|seq| {
            repaired.quarantined.iter().all(|range| *seq <= range.from.0 || *seq > range.to.0)
        })
        .map(|seq| (seq, payload(seq)))
        .collect();
    let mut stream = log.stream(esker_log::Start::Oldest).unwrap();
    let mut seen = Vec::new();
    loop {
        match stream.try_next() {
            Ok(Some(batch)) => {
                seen.extend(batch.iter().map(|record| (record.seq.0, record.payload.to_vec())));
            }
            Ok(None) => break,
            Err(ReadError::Quarantined(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(seen == kept, "{extra}: {:?}", repaired.quarantined);
    log.close().unwrap();
}
