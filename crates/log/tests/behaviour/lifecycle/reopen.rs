//! Opening finds the end by itself, says how the log was left, and drops nothing silently.
//!
//! Guards: stray bytes after the last record that cost the whole segment.
#![allow(clippy::unwrap_used, clippy::panic)] // The helpers of a test stop as loudly as it does.

use std::path::{Path, PathBuf};

use esker_disk::sim::{Persist, SimDisk};
use esker_log::{Log, OpenCheck, Options, PriorShutdown, Seq, Start, verify};

use crate::fixture::{DIR, all, append, driven, log, payload, payloads, read_from};

/// The newest segment file.
fn newest(disk: &SimDisk) -> PathBuf {
    let names = disk.files(Path::new(DIR)).unwrap();
    Path::new(DIR).join(names.into_iter().rfind(|name| name.ends_with(".seg")).unwrap())
}

#[test]
fn reopen_reports_the_prior_shutdown() {
    let disk = SimDisk::new(1);
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(
        (log.storage().recovery().prior_shutdown, log.storage().recovery().session),
        (PriorShutdown::New, 1)
    );
    append(&log, 3);
    log.close().unwrap();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(
        (log.storage().recovery().prior_shutdown, log.storage().recovery().session),
        (PriorShutdown::Clean, 2)
    );
    assert_eq!(
        (log.storage().recovery().last, &log.storage().recovery().truncated_tail),
        (Seq(3), &None)
    );
    append(&log, 3);
    disk.power_cut(Persist::Nothing);
    disk.power_on();
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(
        (log.storage().recovery().prior_shutdown, log.storage().recovery().session),
        (PriorShutdown::Unclean, 3)
    );
    assert_eq!(log.storage().recovery().last, Seq(6));
    log.close().unwrap();
}

/// Three stray bytes, and more, after the last record of a log that was not closed.
#[test]
fn bytes_past_the_end_are_cut_and_reported() {
    for stray in [&b"abc"[..], &[0xFF; 5000]] {
        let (log, disk, _) = log();
        append(&log, 20);
        disk.kill();
        disk.power_on();
        drop(log);
        let file = newest(&disk);
        let bytes = disk.contents(&file).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 / 4096 * 4096 + 4096;
        disk.overwrite(&file, end, stray).unwrap();
        let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        let cut = log.storage().recovery().truncated_tail.clone().expect("the cut is reported");
        assert_eq!((cut.file, cut.offset), (file, end));
        assert!(cut.bytes > 0 && !cut.what.is_empty());
        assert_eq!(all(&log), payloads(1..=20));
        append(&log, 5);
        assert_eq!(all(&log), payloads(1..=25));
        log.close().unwrap();
        let report = verify(DIR, &driven(&disk).0).unwrap();
        assert_eq!((report.records, report.corruption), (25, vec![]));
    }
}

#[test]
fn the_end_is_found_wherever_it_is() {
    let disk = SimDisk::new(1);
    let mut last = 0;
    for round in 0..40 {
        let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
        assert_eq!(log.storage().recovery().last, Seq(last));
        assert_eq!(log.durable(), Seq(last));
        let ticket = log.append(payload(last + 1)).unwrap();
        assert_eq!(ticket.seq(), Seq(last + 1));
        ticket.blocking_wait().unwrap();
        append(&log, round % 7);
        last += 1 + round % 7;
        match round % 3 {
            0 => log.close().unwrap(),
            1 => {
                disk.kill();
                disk.power_on();
            }
            _ => {
                disk.power_cut(Persist::Nothing);
                disk.power_on();
            }
        }
    }
    let log = Log::builder(DIR).options(driven(&disk).0).open().unwrap();
    assert_eq!(all(&log), payloads(1..=last));
    log.close().unwrap();
}

/// Footers vouch for the records of full segments: opening reads those only with a full check.
#[test]
fn a_quick_opening_does_not_read_full_segments() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.segment_size = 1 << 20;
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    for _ in 0..40 {
        log.append(vec![7; 200_000]).unwrap().blocking_wait().unwrap();
    }
    engine.run();
    log.close().unwrap();
    let read = |options: &Options| {
        let before = disk.stats().bytes_read;
        let log = Log::builder(DIR).options(options.clone()).open().unwrap();
        let read = disk.stats().bytes_read - before;
        log.close().unwrap();
        read
    };
    let quick = read(&options);
    assert!(quick < 2 << 20, "{quick} bytes");
    options.check = OpenCheck::Full;
    let full = read(&options);
    assert!(full > 40 * 200_000, "{full} bytes");
    let log = Log::builder(DIR).options(options).open().unwrap();
    assert_eq!(read_from(&log, Start::Oldest).unwrap().len(), 40);
    log.close().unwrap();
}

/// There is no start offset that a caller could get wrong; a file that was made longer or shorter
/// after the log's back is not written over.
#[test]
fn an_opening_that_fails_changes_nothing() {
    let (log, disk, _) = log();
    append(&log, 20);
    log.close().unwrap();
    let file = newest(&disk);
    let len = disk.contents(&file).unwrap().len() as u64;
    disk.truncate(&file, len - 4096).unwrap();
    let before = disk.fingerprint();
    for _ in 0..2 {
        let error = Log::builder(DIR).options(driven(&disk).0).open().unwrap_err();
        assert!(
            matches!(&error, esker_log::OpenError::Corrupted(damage) if damage.file == file),
            "{error}"
        );
    }
    assert_eq!(disk.fingerprint(), before);
    assert!(disk.files(Path::new(DIR)).unwrap().iter().any(|name| name.ends_with(".seg")));
}
