//! Repair of logs of which headers, whole segments or the manifest are gone.
//!
//! Guards: an oldest segment that vanishes without a gap, valid units that go with the headers of
//! their neighbours, truncated records that come back silently with a rebuilt manifest, and a
//! directory with nothing but a watermark page that is taken for a new log.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use esker_disk::sim::SimDisk;
use esker_log::{
    Engine, Log, OnCorruption, OpenError, ReadError, ReadOnlyLog, RepairError, Seq, SeqRange,
    Start, repair, verify,
};

use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::edits::{delete, put, unlink};
use crate::corruption_kit::map::{in_dir, segment_path};
use crate::corruption_kit::repairs::{Loss, Repairing, quarantine};
use crate::corruption_kit::sample::{self, Sample, options, payload};
use crate::corruption_kit::{self, DIR};

/// The claims that are left without these segments and without the headers of those.
fn claim_left(sample: &Sample, gone: &[u64], headless: &[u64]) -> u64 {
    let is = |file: &Path, numbers: &[u64]| numbers.iter().any(|n| segment_path(*n) == file);
    let left = sample.map.durable_bounds.iter().filter(|claim| {
        let in_a_header = claim.at.start == 0 && is(&claim.file, headless);
        !is(&claim.file, gone) && !in_a_header
    });
    left.map(|claim| claim.seq).max().unwrap_or(0)
}

/// Any set of headers is corrupt, and at most one segment is missing.
#[test]
fn repair_without_any_headers_and_one_segment() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        let numbers: Vec<u64> = sample.map.segments.iter().map(|segment| segment.number).collect();
        let missing = numbers.iter().map(|number| vec![*number]).chain([vec![]]);
        for gone in missing {
            for set in 0u32..1 << numbers.len() {
                let headless: Vec<u64> = numbers
                    .iter()
                    .enumerate()
                    .filter(|(n, number)| set >> n & 1 == 1 && !gone.contains(number))
                    .map(|(_, number)| *number)
                    .collect();
                if headless.len() + gone.len() == numbers.len()
                    || claim_left(&sample, &gone, &headless) < sample.last()
                {
                    continue;
                }
                let disk = sample.disk.fork(1);
                for number in &headless {
                    disk.flip_bit(&segment_path(*number), 60 * 8).unwrap();
                }
                let mut losses = Vec::new();
                for number in &gone {
                    unlink(&disk, &segment_path(*number));
                    let of = sample.map.segments.iter().find(|s| s.number == *number).unwrap();
                    let last = of.units.last().map_or(of.prev_seq, |unit| unit.last_seq);
                    losses.push(Loss {
                        segment: *number,
                        bytes: 0..0,
                        records: (of.prev_seq, last),
                    });
                }
                let name = format!("{}, headers {headless:?}, missing {gone:?}", sample.name);
                cases.run(name, || {
                    let engine = Engine::manual();
                    let verifies = headless.is_empty() && gone.is_empty();
                    let report = verify(DIR, options(&disk, &engine));
                    let report = report.map_err(|error| format!("{error:?}"))?;
                    if report.corruption.is_empty() != verifies {
                        return Err(format!("verify finds {:?}", report.corruption));
                    }
                    match Log::builder(DIR).options(options(&disk.fork(3), &engine)).open() {
                        Ok(_) if !verifies => return Err("it opens".into()),
                        Err(OpenError::Corrupted(_)) | Ok(_) => {}
                        Err(other) => return Err(format!("{other:?}")),
                    }
                    quarantine(&sample, &disk, &losses, Repairing::Function)
                });
            }
        }
    }
    cases.finish(60);
}

/// A log of one segment, truncated inside it.
fn truncated(at: u64) -> SimDisk {
    let disk = SimDisk::new(1);
    let engine = Engine::manual();
    let log = Log::builder(DIR).options(options(&disk, &engine)).open().unwrap();
    for seq in 1..=12 {
        log.append(payload("truncated", seq, 100)).unwrap().blocking_wait().unwrap();
    }
    if at > 0 {
        log.retention().truncate_before(at).unwrap();
    }
    log.close().unwrap();
    disk
}

/// Against a manifest that a refused repair wrote: the next repair would not report what may be
/// truncated.
#[test]
fn repair_that_is_refused_writes_no_manifest() {
    let disk = truncated(8);
    for name in ["manifest", "manifest.next", "mark"] {
        let path = in_dir(name);
        if disk.contents(&path).is_ok() {
            unlink(&disk, &path);
        }
    }
    // A segment of another log, under the name of a later one.
    let other = truncated(0).contents(&segment_path(1)).unwrap();
    put(&disk, &segment_path(2), &other);
    let before = disk.files(Path::new(DIR)).unwrap();
    let refused = repair(DIR, options(&disk, &Engine::manual())).unwrap_err();
    assert!(matches!(&refused, RepairError::ForeignFile { file } if *file == segment_path(2)));
    assert_eq!(disk.files(Path::new(DIR)).unwrap(), before);
    unlink(&disk, &segment_path(2));
    let repaired = repair(DIR, options(&disk, &Engine::manual())).unwrap();
    let range = SeqRange { from: Seq(0), to: Seq(12) };
    assert_eq!(repaired.may_be_truncated, Some(range));
}

fn readable(disk: &SimDisk) -> (u64, u64) {
    let engine = Engine::manual();
    let log = Log::builder(DIR).options(options(disk, &engine)).open().unwrap();
    (log.oldest().0, log.durable().0)
}

#[test]
fn a_rebuilt_manifest_keeps_the_trim_point() {
    let disk = truncated(8);
    unlink(&disk, &in_dir("manifest"));
    let repaired = repair(DIR, options(&disk, &Engine::manual())).unwrap();
    assert!(repaired.manifest_rebuilt);
    assert_eq!(repaired.may_be_truncated, None, "the page proves it");
    assert_eq!(readable(&disk), (8, 12));
}

#[test]
fn repair_without_the_watermark_page_reports_what_may_be_truncated() {
    for at in [0, 8] {
        let disk = truncated(at);
        unlink(&disk, &in_dir("manifest"));
        unlink(&disk, &in_dir("mark"));
        let repaired = repair(DIR, options(&disk, &Engine::manual())).unwrap();
        assert_eq!(
            repaired.may_be_truncated,
            Some(SeqRange { from: Seq(0), to: Seq(12) }),
            "truncated before {at}"
        );
        assert_eq!(readable(&disk), (1, 12));
    }
    let disk = truncated(0);
    unlink(&disk, &in_dir("manifest"));
    let repaired = repair(DIR, options(&disk, &Engine::manual())).unwrap();
    assert_eq!(repaired.may_be_truncated, None, "nothing was");
}

#[test]
fn nothing_but_a_watermark_page_is_not_a_new_log() {
    let disk = truncated(8);
    for name in ["manifest", "00000000000000000001.seg"] {
        unlink(&disk, &in_dir(name));
    }
    let engine = Engine::manual();
    let before = disk.fingerprint();
    let is_damaged =
        |error: OpenError| assert!(matches!(error, OpenError::Corrupted(_)), "{error:?}");
    is_damaged(Log::builder(DIR).options(options(&disk, &engine)).open().unwrap_err());
    is_damaged(ReadOnlyLog::builder(DIR).options(options(&disk, &engine)).open().unwrap_err());
    let report = verify(DIR, options(&disk, &engine)).unwrap();
    assert_eq!(report.corruption[0].file, in_dir("manifest"));
    assert!(report.corruption.len() > 1, "the records are missing, too: {report:?}");
    assert_eq!(disk.fingerprint(), before);
    let repaired = repair(DIR, options(&disk, &engine)).unwrap();
    assert!(repaired.manifest_rebuilt);
    let log = Log::builder(DIR).options(options(&disk, &engine)).open().unwrap();
    let reported = log.stream(Start::Oldest).unwrap().try_next().unwrap_err();
    assert!(
        matches!(reported, ReadError::Quarantined(SeqRange { from: Seq(7), to: Seq(12) })),
        "{reported:?}"
    );
    assert_eq!(log.append(b"on").unwrap().blocking_wait().unwrap().seq, Seq(13));
}

/// Without a valid header the page says whose log it is.
#[test]
fn all_headers_and_the_manifest() {
    for sample in [sample::closed(), sample::killed()] {
        let (disk, _) = delete(&sample, &in_dir("manifest"));
        for segment in &sample.map.segments {
            disk.flip_bit(&segment_path(segment.number), 60 * 8).unwrap();
        }
        quarantine(&sample, &disk, &[], Repairing::Function).unwrap();
    }
}

/// A truncating repair below the trim point: what is appended then can be read.
#[test]
fn cutting_below_the_trim_point() {
    let disk = truncated(8);
    disk.flip_bit(&segment_path(1), (4096 + 80) * 8).unwrap();
    let engine = Engine::manual();
    let mut options = options(&disk, &engine);
    options.check = esker_log::OpenCheck::Full;
    options.on_corruption = OnCorruption::Truncate;
    let log = Log::builder(DIR).options(options).open().unwrap();
    let seq = log.append(b"on").unwrap().blocking_wait().unwrap().seq;
    assert_eq!(&*log.read(seq).unwrap(), b"on");
    assert_eq!(log.oldest(), seq);
}

#[test]
fn unused_segment_of_another_log_is_not_removed() {
    let (sample, other) = (sample::closed(), sample::killed());
    let manifest = other.disk.contents(&in_dir("manifest")).unwrap();
    let mut manifest = manifest;
    manifest[44..52].copy_from_slice(&99u64.to_le_bytes());
    corruption_kit::format::set_sealed_version(&mut manifest, corruption_kit::format::VERSION);
    let (disk, _) = corruption_kit::edits::replace(&sample, &in_dir("manifest"), &manifest);
    let before = disk.files(Path::new(DIR)).unwrap();
    match Log::builder(DIR).options(options(&disk, &Engine::manual())).open() {
        Err(OpenError::ForeignFile { .. }) => {}
        other => panic!("{other:?}"),
    }
    let reported = verify(DIR, options(&disk, &Engine::manual())).unwrap_err();
    assert!(matches!(reported, RepairError::ForeignFile { .. }), "{reported:?}");
    assert_eq!(disk.files(Path::new(DIR)).unwrap(), before);
}

/// An older manifest of a clean close, of a log that has the same last record elsewhere now.
#[test]
fn clean_close_of_an_older_manifest_is_corruption_for_verify() {
    let disk = truncated(0);
    let older = disk.contents(&in_dir("manifest")).unwrap();
    let engine = Engine::manual();
    let log = Log::builder(DIR).options(options(&disk, &engine)).open().unwrap();
    disk.kill();
    drop(log);
    disk.power_on();
    Log::builder(DIR).options(options(&disk, &engine)).open().unwrap().close().unwrap();
    corruption_kit::edits::put(&disk, &in_dir("manifest"), &older);
    assert!(matches!(
        Log::builder(DIR).options(options(&disk.fork(1), &engine)).open(),
        Err(OpenError::Corrupted(_))
    ));
    assert!(!verify(DIR, options(&disk, &engine)).unwrap().corruption.is_empty());
    repair(DIR, options(&disk, &engine)).unwrap();
    assert!(verify(DIR, options(&disk, &engine)).unwrap().corruption.is_empty());
    assert_eq!(readable(&disk), (1, 12));
}

/// Three segments, of which the first was dropped after the trim point had reached its end. Gives
/// the manifest of the moment between.
fn dropped_below_the_trim_point() -> (SimDisk, Vec<u8>) {
    let disk = SimDisk::new(1);
    let engine = Engine::manual();
    let mut options = options(&disk, &engine);
    options.segment_records = Some(4);
    let log = Log::builder(DIR).options(options).open().unwrap();
    let append = |seq| {
        log.append(payload("dropped", seq, 100)).unwrap().blocking_wait().unwrap();
    };
    (1..=4).for_each(append);
    log.retention().truncate_before(5).unwrap();
    let between = disk.contents(&in_dir("manifest")).unwrap();
    (5..=12).for_each(append);
    log.retention().truncate_before(5).unwrap();
    engine.run();
    assert!(disk.contents(&segment_path(1)).is_err(), "it left the log");
    disk.kill();
    drop(log);
    disk.power_on();
    (disk, between)
}

#[test]
fn a_segment_without_records_is_not_missed() {
    let (disk, between) = dropped_below_the_trim_point();
    corruption_kit::edits::put(&disk, &in_dir("manifest"), &between);
    let engine = Engine::manual();
    for other in [None, Some(&between)] {
        let disk = disk.fork(1);
        if let Some(bytes) = other {
            corruption_kit::edits::put(&disk, &segment_path(1), bytes);
        }
        let report = verify(DIR, options(&disk, &engine)).unwrap();
        assert_eq!((report.corruption, report.records), (vec![], 8));
        (0..3).for_each(|_| assert_eq!(readable(&disk), (5, 12)));
    }
}

/// The manifest is lost, the page says nothing, and the only segment is another log's. The
/// temporary file of the manifest still names the log.
#[test]
fn repair_without_the_manifest_takes_no_segment_of_another_log() {
    let (log, other) = (sample::lonely(), sample::closed());
    let engine = Engine::manual();
    let foreign = other.disk.contents(&segment_path(1)).unwrap();
    let disk = log.disk.fork(1);
    for (name, bytes) in [("manifest", vec![7; 4096]), ("mark", vec![])] {
        put(&disk, &in_dir(name), &bytes);
    }
    let lost = disk.fork(2);
    put(&disk, &segment_path(1), &foreign);
    let before = disk.fingerprint();
    let refused = repair(DIR, options(&disk, &engine));
    assert!(
        matches!(&refused, Err(RepairError::ForeignFile { file }) if *file == segment_path(1)),
        "{refused:?}"
    );
    assert_eq!(disk.fingerprint(), before);

    // The temporary file is empty, or names the log of the segment: the segment decides.
    unlink(&disk, &in_dir("manifest.next"));
    assert!(repair(DIR, options(&disk, &engine)).unwrap().manifest_rebuilt);
    assert!(repair(DIR, options(&lost, &engine)).unwrap().manifest_rebuilt);
    assert_eq!(readable(&lost), (1, log.last()));

    // The page and the segment name one log, and the temporary file another.
    let disk = log.disk.fork(3);
    put(&disk, &in_dir("manifest"), &[7; 4096]);
    let foreign = other.disk.contents(&in_dir("manifest.next")).unwrap();
    put(&disk, &in_dir("manifest.next"), &foreign);
    let refused = repair(DIR, options(&disk, &engine));
    assert!(
        matches!(&refused, Err(RepairError::ForeignFile { file }) if *file == in_dir("manifest.next")),
        "{refused:?}"
    );
}

/// The manifest from before the first segment was durable.
#[test]
fn an_older_manifest_without_a_first_segment_drops_nothing() {
    let disk = SimDisk::new(1);
    let engine = Engine::manual();
    let mut options = options(&disk, &engine);
    options.segment_records = Some(4);
    let log = Log::builder(DIR).options(options).open().unwrap();
    let older = disk.contents(&in_dir("manifest.next")).unwrap();
    for seq in 1..=12 {
        log.append(payload("older", seq, 100)).unwrap().blocking_wait().unwrap();
    }
    disk.kill();
    drop(log);
    disk.power_on();
    corruption_kit::edits::put(&disk, &in_dir("manifest"), &older);
    (0..3).for_each(|_| assert_eq!(readable(&disk), (1, 12)));
}

/// The last record is corrupt, and all were dropped: new records must not get its number.
#[test]
fn log_that_ends_below_its_trim_point_is_corrupted() {
    let disk = truncated(0);
    let engine = Engine::manual();
    let log = Log::builder(DIR).options(options(&disk, &engine)).open().unwrap();
    log.retention().truncate_before(13).unwrap();
    disk.kill();
    drop(log);
    disk.power_on();
    let bytes = disk.contents(&segment_path(1)).unwrap();
    let mut blocks = bytes.chunks(4096);
    let last = blocks.rposition(|block| block.iter().any(|byte| *byte != 0)).unwrap();
    disk.flip_bit(&segment_path(1), (last as u64 * 4096 + 100) * 8).unwrap();
    assert!(matches!(
        Log::builder(DIR).options(options(&disk.fork(1), &engine)).open(),
        Err(OpenError::Corrupted(_))
    ));
    assert!(!verify(DIR, options(&disk, &engine)).unwrap().corruption.is_empty());
    repair(DIR, options(&disk, &engine)).unwrap();
    let log = Log::builder(DIR).options(options(&disk, &engine)).open().unwrap();
    assert_eq!(log.append(b"next").unwrap().seq(), Seq(13));
}

/// With the manifest the watermark page was lost, too, and the newest units have no later one.
#[test]
fn readers_see_all_that_a_repair_left() {
    let disk = truncated(0);
    let engine = Engine::manual();
    let log = Log::builder(DIR).options(options(&disk, &engine)).open().unwrap();
    log.append(payload("truncated", 13, 100)).unwrap().blocking_wait().unwrap();
    disk.kill();
    drop(log);
    disk.power_on();
    for name in ["manifest", "mark"] {
        unlink(&disk, &in_dir(name));
    }
    assert!(repair(DIR, options(&disk, &engine)).unwrap().manifest_rebuilt);
    let reader = ReadOnlyLog::builder(DIR).options(options(&disk, &engine)).open().unwrap();
    assert_eq!(*reader.read(13).unwrap(), *payload("truncated", 13, 100));
}

/// All segments are gone, and the watermark page is of a time before the manifest raised the trim
/// point: it names a segment that left the log, and that is not the one that is missing.
#[test]
fn a_watermark_page_of_a_dropped_segment_hides_no_missing_one() {
    let disk = SimDisk::new(1);
    let engine = Engine::manual();
    let mut options = options(&disk, &engine);
    options.segment_records = Some(4);
    let log = Log::builder(DIR).options(options.clone()).open().unwrap();
    let append = |seq| log.append(payload("page", seq, 100)).unwrap().blocking_wait().unwrap();
    append(1);
    let page = disk.contents(&in_dir("mark")).unwrap();
    for seq in 2..=12 {
        append(seq);
    }
    log.retention().truncate_before(9).unwrap();
    disk.kill();
    drop(log);
    disk.power_on();
    let names = disk.files(Path::new(DIR)).unwrap();
    let segments: Vec<_> = names.iter().filter(|name| name.ends_with(".seg")).collect();
    assert_eq!(segments, ["00000000000000000003.seg"]);
    unlink(&disk, &segment_path(3));
    put(&disk, &in_dir("mark"), &page);

    let report = verify(DIR, &options).unwrap();
    let first = report.corruption.first().expect("verify finds it valid");
    assert_eq!((&first.file, first.offset, first.after), (&segment_path(3), 0, Seq(8)));
    assert!(first.what.starts_with("the segment is missing"), "{first}");
    let reader = ReadOnlyLog::builder(DIR).options(options.clone()).open().unwrap();
    assert_eq!(reader.storage().corruption().map(|found| found.file), Some(segment_path(3)));
    drop(reader);

    assert_eq!(repair(DIR, &options).unwrap().quarantined[0].file, segment_path(3));
    assert!(verify(DIR, &options).unwrap().corruption.is_empty());
    let log = Log::builder(DIR).options(options).open().unwrap();
    assert!(log.append(b"next").unwrap().seq() > Seq(8));
}
