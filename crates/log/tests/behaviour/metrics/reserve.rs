//! The reserve and the spare files: what the disk has of them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use esker_disk::sim::SimDisk;
use esker_log::component::Purpose;
use esker_log::{AppendError, Log, LogMetrics};

use crate::fixture::{DIR, append, driven};

const MIB: u64 = 1 << 20;

fn size(disk: &SimDisk, name: &str) -> u64 {
    disk.contents(&Path::new(DIR).join(name)).map_or(0, |bytes| bytes.len() as u64)
}

/// The metrics, after the reserve in them was compared with the file.
fn checked(log: &Log, disk: &SimDisk) -> LogMetrics {
    let metrics = log.metrics();
    assert_eq!(metrics.reserve_bytes, size(disk, "reserve"));
    metrics
}

#[test]
fn a_full_disk_uses_the_reserve_and_fills_it_later() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(8 * MIB));
    let (mut options, engine) = driven(&disk);
    options.reserve = Some(2 * MIB);
    options.segment_size = MIB as u32;
    let log = Log::builder(DIR).options(options).open().unwrap();
    let full = checked(&log, &disk);
    assert_eq!((full.reserve_bytes, full.reserve_wanted_bytes), (2 * MIB, 2 * MIB));

    // Ordinary appends leave the reserve alone.
    let refused = loop {
        if let Err(error) = log.append([7; 10_000]).and_then(|ticket| Ok(ticket.blocking_wait()?)) {
            break error;
        }
    };
    assert!(refused.is_no_space(), "{refused:?}");
    assert_eq!(checked(&log, &disk).reserve_bytes, 2 * MIB);

    // Internal ones may use it.
    let internal =
        |log: &Log| log.component().append(Purpose::Internal, [7; 10_000]).unwrap().blocking_wait();
    let mut used = 0;
    while checked(&log, &disk).reserve_bytes == 2 * MIB {
        internal(&log).unwrap();
        used += 1;
        assert!(used < 1000, "the reserve was never used");
    }
    let low = checked(&log, &disk);
    assert!(low.reserve_bytes < 2 * MIB, "{}", low.reserve_bytes);
    assert_eq!(low.reserve_wanted_bytes, 2 * MIB);

    disk.set_capacity(Some(64 * MIB));
    log.append(b"room again").unwrap().blocking_wait().unwrap();
    engine.run();
    assert_eq!(checked(&log, &disk).reserve_bytes, 2 * MIB);
    log.close().unwrap();
}

#[test]
fn a_disk_without_room_for_the_reserve_shows_what_there_is() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(MIB));
    let (mut options, _) = driven(&disk);
    options.reserve = Some(16 * MIB);
    let log = match Log::builder(DIR).options(options).open() {
        Ok(log) => log,
        Err(error) => panic!("{error}"),
    };
    let metrics = checked(&log, &disk);
    assert!(metrics.reserve_bytes < MIB, "{}", metrics.reserve_bytes);
    assert_eq!(metrics.reserve_wanted_bytes, 16 * MIB);
    drop(
        log.append([0; 100]).map_err(|error| assert!(matches!(error, AppendError::NoSpace { .. }))),
    );
    log.close().unwrap();
}

/// Segments and their bytes, and the files that wait to be reused.
#[test]
fn segments_and_spare_files_are_those_of_the_directory() {
    let disk = SimDisk::new(1);
    let (mut options, engine) = driven(&disk);
    options.retention.segments = Some(3);
    let log = Log::builder(DIR).options(options).open().unwrap();
    let mut most = 0;
    for _ in 0..40 {
        append(&log, 17);
        engine.run();
        let files = disk.files(Path::new(DIR)).unwrap();
        let count = |end: &str| files.iter().filter(|name| name.ends_with(end)).count();
        let metrics = log.metrics();
        assert_eq!(metrics.spare_segments, count(".spare"), "{files:?}");
        most = most.max(metrics.spare_segments);
        let segments = log.storage().segments();
        assert_eq!(metrics.metadata.segments, segments.len());
        let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        assert_eq!(metrics.metadata.disk_bytes, bytes);
    }
    assert!(most > 0, "no segment was kept for reuse");
    log.close().unwrap();
}
