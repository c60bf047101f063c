//! Files of a log are missing, change places, come from elsewhere, or from another time.
//!
//! Guards: a missing segment that is not reported; records of another log, or of
//! another segment, or of an earlier state of the log, handed out as this one's; a format version
//! that this code does not know, read as if it did.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

use esker_disk::sim::SimDisk;
use esker_log::{Engine, Error, Log, OnCorruption, OpenError, ReadOnlyLog, repair, verify};

use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::edits::{delete, flip, put, replace};
use crate::corruption_kit::format::{VERSION, set_sealed_version, set_segment_version};
use crate::corruption_kit::map::{Map, in_dir, segment_path};
use crate::corruption_kit::outcomes::{Opened, Openers, open_with};
use crate::corruption_kit::reading::Item;
use crate::corruption_kit::repairs::{Loss, Repairing, continues, quarantine};
use crate::corruption_kit::sample::{self, Building, Sample, options};
use crate::corruption_kit::{DIR, repairs};

/// Everything that is stored in a segment.
fn whole(sample: &Sample, number: u64) -> Vec<Loss> {
    let segment = sample.map.segments.iter().find(|segment| segment.number == number).unwrap();
    let Some(last) = segment.units.last() else { return Vec::new() };
    let loss = Loss {
        segment: number,
        bytes: segment.units[0].at.start..last.at.end,
        records: (segment.prev_seq, last.last_seq),
    };
    vec![loss]
}

fn content(sample: &Sample, number: u64) -> Vec<u8> {
    sample.disk.contents(&segment_path(number)).unwrap()
}

/// The error of opening, reading and verifying, which must be the same.
fn refusal(disk: &SimDisk) -> Error {
    let engine = Engine::manual();
    let before = disk.fingerprint();
    let reader = ReadOnlyLog::builder(DIR).options(options(disk, &engine)).open().unwrap_err();
    let report = verify(DIR, options(disk, &engine)).unwrap_err();
    assert_eq!(disk.fingerprint(), before, "reading changed the files");
    let opening = Log::builder(DIR).options(options(disk, &engine)).open().unwrap_err();
    let repairing = repair(DIR, options(disk, &engine)).unwrap_err();
    let opening = Error::from(opening);
    let reported = format!("{opening:?}");
    for other in [reader.into(), report.into(), Error::from(repairing)] {
        assert_eq!(format!("{other:?}"), reported);
    }
    opening
}

/// A missing segment whose records are known to be durable is corruption; a repair keeps everything
/// else.
#[test]
fn a_deleted_segment() {
    let mut cases = Cases::default();
    for sample in sample::all() {
        for segment in &sample.map.segments {
            let (disk, edit) = delete(&sample, &segment_path(segment.number));
            let loss = whole(&sample, segment.number);
            if loss[0].records.1 > sample.map.durable_bound_without(&edit.file, &edit.at) {
                continue;
            }
            cases.run(format!("{}, {edit}", sample.name), || {
                let opened = open_with(&sample, &disk, &edit, Openers::All)?;
                let Opened::Refused(_) = opened else { return Err(format!("{opened:?}")) };
                for repairing in [Repairing::Function, Repairing::Opening] {
                    let outcome = quarantine(&sample, &disk, &loss, repairing);
                    outcome.map_err(|error| format!("{repairing:?}: {error}"))?;
                }
                let rest = sample.items.iter().filter(|item| item.last() <= segment.prev_seq);
                let rest: Vec<Item> = rest.cloned().collect();
                let disk = disk.fork(4);
                repairs::check_log(&repairs::open(&disk, OnCorruption::Truncate)?, &rest)?;
                continues(&sample, disk, rest)
            });
        }
    }
    cases.finish(12);
}

#[test]
fn segment_copied_over_another_is_reported() {
    let mut cases = Cases::default();
    for sample in sample::all() {
        for from in &sample.map.segments {
            for to in sample.map.segments.iter().filter(|to| to.number != from.number) {
                let file = segment_path(to.number);
                let (disk, edit) = replace(&sample, &file, &content(&sample, from.number));
                let loss = whole(&sample, to.number);
                if loss[0].records.1 > sample.map.durable_bound_without(&edit.file, &edit.at) {
                    continue;
                }
                cases.run(format!("{}, {} over {}", sample.name, from.number, to.number), || {
                    let opened = open_with(&sample, &disk, &edit, Openers::All)?;
                    let Opened::Refused(_) = opened else { return Err(format!("{opened:?}")) };
                    let loss = [Loss { bytes: 0..0, ..loss[0].clone() }];
                    quarantine(&sample, &disk, &loss, Repairing::Function)
                });
            }
        }
    }
    cases.finish(30);
}

#[test]
fn two_exchanged_segments_are_reported() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        let numbers: Vec<u64> = sample.map.segments.iter().map(|segment| segment.number).collect();
        for (n, a) in numbers.iter().enumerate() {
            for b in &numbers[n + 1..] {
                let (disk, _) = replace(&sample, &segment_path(*a), &content(&sample, *b));
                put(&disk, &segment_path(*b), &content(&sample, *a));
                cases.run(format!("{}, {a} and {b}", sample.name), || {
                    let engine = Engine::manual();
                    let report = verify(DIR, options(&disk, &engine));
                    let report = report.map_err(|error| format!("{error:?}"))?;
                    let names = |number| {
                        report.corruption.iter().any(|damage| damage.file == segment_path(number))
                    };
                    if !names(*a) || !names(*b) {
                        return Err(format!("verify reports {:?}", report.corruption));
                    }
                    match Log::builder(DIR).options(options(&disk, &engine)).open() {
                        Err(OpenError::Corrupted(_)) => {}
                        other => return Err(format!("opening: {other:?}")),
                    }
                    let lost: Vec<Loss> = [*a, *b]
                        .into_iter()
                        .flat_map(|number| whole(&sample, number))
                        .map(|loss| Loss { bytes: 0..0, ..loss })
                        .collect();
                    quarantine(&sample, &disk, &lost, Repairing::Function)
                });
            }
        }
    }
    cases.finish(12);
}

#[test]
fn a_segment_of_another_log_is_foreign() {
    let other = sample::killed();
    for sample in [sample::closed(), sample::torn()] {
        for segment in &sample.map.segments {
            for unknown in &other.map.segments {
                // In the place of one of the log's own, and as one more.
                let mut block = content(&other, unknown.number);
                for number in [segment.number, 77] {
                    block[32..40].copy_from_slice(&number.to_le_bytes());
                    set_segment_version(&mut block, VERSION);
                    let file = segment_path(number);
                    let (disk, _) = replace(&sample, &file, &block);
                    match refusal(&disk) {
                        Error::ForeignFile { file: reported } => assert_eq!(reported, file),
                        error => panic!("{error:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn the_manifest_of_another_log_makes_the_segments_foreign() {
    let (sample, other) = (sample::closed(), sample::killed());
    let manifest = other.disk.contents(&in_dir("manifest")).unwrap();
    let (disk, _) = replace(&sample, &in_dir("manifest"), &manifest);
    assert!(matches!(refusal(&disk), Error::ForeignFile { .. }));
}

#[test]
fn watermark_page_of_another_log_is_ignored() {
    let (sample, other) = (sample::lonely(), sample::closed());
    let mark = in_dir("mark");
    let (disk, edit) = replace(&sample, &mark, &other.disk.contents(&mark).unwrap());
    let opened = open_with(&sample, &disk, &edit, Openers::All).unwrap();
    assert!(matches!(opened, Opened::Whole), "{opened:?}");
}

#[test]
fn a_newer_version_is_refused() {
    for version in [0, 1, 3, u32::MAX] {
        for sample in [sample::closed(), sample::killed()] {
            for segment in &sample.map.segments {
                let file = segment_path(segment.number);
                let mut bytes = content(&sample, segment.number);
                set_segment_version(&mut bytes, version);
                let (disk, _) = replace(&sample, &file, &bytes);
                is_version(&refusal(&disk), &file, version);
            }
            let file = in_dir("manifest");
            let mut bytes = sample.disk.contents(&file).unwrap();
            set_sealed_version(&mut bytes, version);
            let (disk, _) = replace(&sample, &file, &bytes);
            is_version(&refusal(&disk), &file, version);
        }
    }
}

fn is_version(error: &Error, file: &PathBuf, version: u32) {
    match error {
        Error::UnsupportedVersion { file: reported, version: v } => {
            assert_eq!((reported, *v), (file, version));
        }
        error => panic!("{error:?}"),
    }
}

/// A log that was closed, and the same log after it continued and was killed, or closed again.
fn then_and_now() -> Vec<(Sample, Sample)> {
    [false, true]
        .map(|clean| {
            let mut log = Building::new("then");
            log.open(4).one(50).several(&[60, 70]).close();
            let then = log.done(true);
            let mut log = Building::on("now", then.disk.fork(1), then.items.clone());
            log.open(4).several(&[5000, 80]).run().one(90).one(40).run();
            if clean {
                log.close()
            } else {
                log.kill()
            };
            (then, log.done(clean))
        })
        .into()
}

/// Opening has to return everything that the log holds now, or to report corruption.
fn all_or_reported(now: &Sample, disk: &SimDisk) -> Result<(), String> {
    let engine = Engine::manual();
    let report = verify(DIR, options(disk, &engine)).map_err(|error| format!("{error:?}"))?;
    let copy = disk.fork(1);
    match Log::builder(DIR).options(options(&copy, &engine)).open() {
        Ok(log) => repairs::check_log(&log, &now.items)?,
        Err(OpenError::Corrupted(_)) if report.corruption.is_empty() => {
            return Err("opening refuses, and verify finds nothing".into());
        }
        Err(OpenError::Corrupted(_)) => {
            let engine = Engine::manual();
            let copy = disk.fork(2);
            repair(DIR, options(&copy, &engine)).map_err(|error| format!("repair: {error:?}"))?;
            let log = Log::builder(DIR).options(options(&copy, &engine)).open();
            drop(log.map_err(|error| format!("after repair: {error:?}"))?);
        }
        Err(other) => return Err(format!("{other:?}")),
    }
    Ok(())
}

#[test]
fn older_manifest_cuts_nothing_silently() {
    let mut cases = Cases::default();
    for (then, now) in then_and_now() {
        let manifest = in_dir("manifest");
        let (disk, _) = replace(&now, &manifest, &then.disk.contents(&manifest).unwrap());
        cases.run(format!("clean: {}", now.clean), || all_or_reported(&now, &disk));
        // Nor when nothing but units after that end speak for the records.
        let (disk, _) = delete(&now, &in_dir("mark"));
        put(&disk, &manifest, &then.disk.contents(&manifest).unwrap());
        cases.run(format!("clean: {}, no mark", now.clean), || all_or_reported(&now, &disk));
    }
    cases.finish(4);
}

#[test]
fn older_copy_of_a_segment_is_corruption() {
    let mut cases = Cases::default();
    for (then, now) in then_and_now() {
        let file = segment_path(1);
        let (disk, _) = replace(&now, &file, &then.disk.contents(&file).unwrap());
        cases.run(format!("clean: {}", now.clean), || all_or_reported(&now, &disk));
    }
    cases.finish(2);
}

#[test]
fn segment_of_a_diverged_copy_is_corruption() {
    // Two logs from one: the same name and number, all units valid, and other records in them.
    let mut cases = Cases::default();
    for (then, now) in then_and_now() {
        let mut other = Building::on("other future", then.disk.fork(9), then.items.clone());
        other.open(4).several(&[5000, 80]).run().one(90).one(40).close();
        let other = other.done(true);
        for segment in &now.map.segments {
            let file = segment_path(segment.number);
            let (disk, edit) = replace(&now, &file, &other.disk.contents(&file).unwrap());
            cases.run(format!("clean: {}, {edit}", now.clean), || {
                let engine = Engine::manual();
                let copy = disk.fork(1);
                match Log::builder(DIR).options(options(&copy, &engine)).open() {
                    Ok(log) => return Err(format!("it opens: {:?}", log.storage().recovery())),
                    Err(OpenError::Corrupted(_)) => {}
                    Err(other) => return Err(format!("{other:?}")),
                }
                all_or_reported(&now, &disk)
            });
        }
    }
    cases.finish(4);
}

#[test]
fn foreign_segment_with_the_highest_number() {
    let sample = sample::killed();
    for number in [u64::MAX, u64::MAX - 1] {
        let (disk, _) = replace(&sample, &segment_path(number), &sample::payload("stray", 1, 9000));
        let engine = Engine::manual();
        let copy = disk.fork(1);
        match Log::builder(DIR).options(options(&copy, &engine)).open() {
            Ok(log) => {
                repairs::check_log(&log, &sample.items).unwrap();
                log.append(b"on").unwrap().blocking_wait().unwrap();
            }
            Err(OpenError::Corrupted(damage)) => assert_eq!(damage.file, segment_path(number)),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn two_corrupted_headers_in_a_row_are_reported() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        for pair in sample.map.segments.windows(2) {
            let (disk, _) = flip(&sample, &segment_path(pair[0].number), 60, 1);
            disk.flip_bit(&segment_path(pair[1].number), 70 * 8).unwrap();
            for repairing in [Repairing::Function, Repairing::Opening] {
                let name = format!("{}, {} and {}", sample.name, pair[0].number, pair[1].number);
                cases.run(format!("{name}, {repairing:?}"), || {
                    quarantine(&sample, &disk, &[], repairing)
                });
            }
        }
        Map::read(&sample.disk);
    }
    cases.finish(8);
}

#[test]
fn first_of_two_corrupted_headers_is_reported() {
    for sample in [sample::closed(), sample::killed()] {
        let segments = &sample.map.segments;
        for (first, second) in segments.iter().zip(&segments[2..]) {
            let file = segment_path(first.number);
            let (disk, _) = flip(&sample, &file, 60, 1);
            disk.flip_bit(&segment_path(second.number), 70 * 8).unwrap();
            let engine = Engine::manual();
            match Log::builder(DIR).options(options(&disk.fork(1), &engine)).open() {
                Err(OpenError::Corrupted(damage)) => assert_eq!(damage.file, file),
                other => panic!("{other:?}"),
            }
            let reader = ReadOnlyLog::builder(DIR).options(options(&disk, &engine)).open().unwrap();
            assert_eq!(reader.storage().corruption().map(|damage| damage.file), Some(file));
            assert_eq!(reader.durable().0, first.prev_seq, "it continues after what is lost");
        }
    }
}
