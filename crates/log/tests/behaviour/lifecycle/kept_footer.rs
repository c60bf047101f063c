//! A clean close keeps the footer of the segment where the log ends, in the manifest. Opening then
//! reads that segment's last units only, and a log that is not as it was closed is noticed.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use esker_disk::Op;
use esker_disk::sim::{Effect, Fault, Persist, SimDisk};
use esker_log::{
    Append, Error, Log, LogError, OpenCheck, Options, PriorShutdown, ReadError, ReadOnlyLog, Seq,
    Start, verify,
};

use crate::fixture::{DIR, all, append, driven, payloads, read_from};

/// The units of the log, each of one record and one block. With this index opening checks the last
/// four of them, and the one before.
const UNITS: u64 = 12;
const BLOCK: u64 = 4096;

fn options(disk: &SimDisk) -> Options {
    let mut options = driven(disk).0;
    options.index_bytes = 4096;
    options.index_records = 1;
    options
}

fn open(disk: &SimDisk) -> esker_log::Result<Log> {
    Log::builder(DIR).options(options(disk)).open().map_err(Into::into)
}

/// The disk of a log of one segment that was closed.
fn closed() -> SimDisk {
    let disk = SimDisk::new(1);
    let log = open(&disk).unwrap();
    append(&log, UNITS);
    log.close().unwrap();
    disk
}

fn in_dir(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn segment(disk: &SimDisk) -> PathBuf {
    let names = disk.files(Path::new(DIR)).unwrap();
    in_dir(names.iter().find(|name| name.ends_with(".seg")).unwrap())
}

/// Opening reads neither the first units nor lets go of them: the index finds each record.
#[test]
fn opening_reads_the_last_units_only() {
    let disk = closed();
    let segment = segment(&disk);
    disk.make_unreadable(&segment, 2 * BLOCK).unwrap();
    let log = open(&disk).unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
    assert_eq!((log.storage().recovery().last, log.durable()), (Seq(UNITS), Seq(UNITS)));
    assert!(matches!(log.read(Seq(2)), Err(ReadError::Log(LogError::Io(_)))));
    for after in 2..UNITS {
        let rest = read_from(&log, Start::After(Seq(after))).unwrap();
        assert_eq!(rest, payloads(after + 1..=UNITS));
    }
    log.close().unwrap();
    let reader = ReadOnlyLog::builder(DIR).options(options(&disk)).open().unwrap();
    assert_eq!(reader.durable(), Seq(UNITS));

    let mut whole = options(&disk);
    whole.check = OpenCheck::Full;
    assert!(Log::builder(DIR).options(whole).open().is_err(), "every byte is checked");
}

/// The same error as a scan of the whole segment gives, for each of the units that are checked.
#[test]
fn a_damaged_unit_near_the_end_is_found() {
    for unit in UNITS - 3..=UNITS {
        for byte in [0, 20, 70, 120] {
            let disk = closed();
            let segment = segment(&disk);
            disk.flip_bit(&segment, (unit * BLOCK + byte) * 8).unwrap();
            let Err(Error::Corrupted(corruption)) = open(&disk) else {
                panic!("byte {byte} of unit {unit}");
            };
            assert_eq!((&corruption.file, corruption.offset), (&segment, unit * BLOCK));
            assert_eq!(corruption.after, Seq(unit - 1));
        }
    }
}

/// Damage before them is found by its reader, and by `verify`.
#[test]
fn a_damaged_unit_before_them_is_found_when_it_is_read() {
    for unit in 1..UNITS - 5 {
        let disk = closed();
        let segment = segment(&disk);
        disk.flip_bit(&segment, (unit * BLOCK + 70) * 8).unwrap();
        let log = open(&disk).unwrap();
        let error = read_from(&log, Start::Oldest).unwrap_err();
        let Error::Corrupted(corruption) = error else { panic!("{error}") };
        assert_eq!((&corruption.file, corruption.offset), (&segment, unit * BLOCK));
        assert_eq!(read_from(&log, Start::After(Seq(unit))).unwrap(), payloads(unit + 1..=UNITS));
        log.close().unwrap();
        let report = verify(DIR, options(&disk)).unwrap();
        assert_eq!(report.corruption.len(), 1, "{:?}", report.corruption);
    }
}

/// A segment that is shorter than the manifest says, and one of another log.
#[test]
fn a_segment_that_does_not_reach_its_end_is_corrupt() {
    for len in [BLOCK, 5 * BLOCK, UNITS * BLOCK, UNITS * BLOCK + 100] {
        let disk = closed();
        disk.truncate(&segment(&disk), len).unwrap();
        assert!(matches!(open(&disk), Err(Error::Corrupted(_))), "{len}");
    }
}

/// A manifest that is older than the segment would cut off what a later session wrote.
#[test]
fn an_outdated_manifest_is_noticed() {
    let disk = closed();
    let old = disk.contents(&in_dir("manifest")).unwrap();
    let log = open(&disk).unwrap();
    append(&log, 2);
    log.close().unwrap();
    assert_eq!(all(&open(&disk.fork(1)).unwrap()), payloads(1..=UNITS + 2));
    disk.overwrite(&in_dir("manifest"), 0, &old).unwrap();
    let Err(Error::Corrupted(corruption)) = open(&disk) else { panic!("two records are lost") };
    assert!(corruption.what.contains("not its end"), "{}", corruption.what);
}

/// Records written after a reopening are after the clean end, which leaves the manifest together
/// with the footer.
#[test]
fn a_log_that_continues_is_scanned_to_its_end() {
    for persist in [Persist::Nothing, Persist::Everything] {
        let disk = closed();
        let log = open(&disk).unwrap();
        append(&log, 2);
        disk.power_cut(persist);
        disk.power_on();
        drop(log);
        let log = open(&disk).unwrap();
        assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Unclean);
        assert_eq!(all(&log), payloads(1..=UNITS + 2));
        log.close().unwrap();
        let log = open(&disk).unwrap();
        assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
        assert_eq!(all(&log), payloads(1..=UNITS + 2));
    }
}

/// The footer is optional: on a full disk the log is closed without it.
#[test]
fn a_full_disk_keeps_no_footer() {
    let disk = SimDisk::new(1);
    let log = open(&disk).unwrap();
    append(&log, UNITS);
    disk.inject(Fault::on(Op::Write, Effect::NoSpace).path("manifest.next").times(1));
    log.close().unwrap();
    disk.clear_faults();
    let segment = segment(&disk);
    let log = open(&disk.fork(1)).unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
    assert_eq!(all(&log), payloads(1..=UNITS));
    disk.make_unreadable(&segment, 2 * BLOCK).unwrap();
    assert!(open(&disk).is_err(), "the segment is scanned whole");
}

/// Headers and footers are read some at a time, and each belongs to its own segment.
#[test]
fn many_full_segments_are_known_by_their_footers() {
    let disk = SimDisk::new(1);
    let log = open(&disk).unwrap();
    append(&log, 2400);
    log.close().unwrap();
    let files = disk.files(Path::new(DIR)).unwrap();
    let segments: Vec<_> = files.iter().filter(|name| name.ends_with(".seg")).collect();
    assert!(segments.len() > 130, "more than are read at a time, twice");
    for name in &segments {
        disk.make_unreadable(&in_dir(name), 2 * BLOCK).unwrap();
    }
    let log = open(&disk).unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
    assert_eq!(log.storage().metadata().after, Seq::ZERO);
    for seq in (1..=2400).filter(|seq| seq % 15 != 2) {
        assert!(log.read(Seq(seq)).is_ok(), "{seq}");
    }
}

/// It has more entries than fit into the first read.
#[test]
fn a_footer_of_many_small_records_is_read() {
    let disk = SimDisk::new(1);
    let mut options = options(&disk);
    options.segment_size = 128 << 10;
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    for _ in 0..100 {
        log.write(Append::records(&[[7; 8]; 100])).unwrap().blocking_wait().unwrap();
    }
    log.close().unwrap();
    let files = disk.files(Path::new(DIR)).unwrap();
    let full = files.iter().filter(|name| name.ends_with(".seg")).count() - 1;
    assert!(full > 1 && 10_000 / (full as u64 + 1) * 24 > 40 << 10, "{full} full segments");
    disk.make_unreadable(&segment(&disk), 2 * BLOCK).unwrap();
    let log = Log::builder(DIR).options(options).open().unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
    assert_eq!(log.storage().recovery().last, Seq(10_000));
}

/// The log continues in that segment, which gets a footer of its own when it is full.
#[test]
fn a_segment_that_continues_gets_its_footer() {
    let disk = closed();
    let log = open(&disk).unwrap();
    append(&log, 20);
    log.close().unwrap();
    let first = segment(&disk);
    disk.make_unreadable(&first, 2 * BLOCK).unwrap();
    let log = open(&disk).unwrap();
    assert_eq!(log.storage().recovery().prior_shutdown, PriorShutdown::Clean);
    assert_eq!(read_from(&log, Start::After(Seq(2))).unwrap(), payloads(3..=UNITS + 20));
}
