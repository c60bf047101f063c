//! The bytes that `repair` cuts off a file.
//!
//! Guards: valid records in a corrupt unit that are destroyed because nothing is known of the next
//! segment; bytes that are cut off and neither quarantined nor reported.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::Path;

use esker_disk::sim::SimDisk;
use esker_log::{ReadOptions, Salvaged, repair, salvage, salvage_log};

use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::edits::unlink;
use crate::corruption_kit::format::{self, BLOCK};
use crate::corruption_kit::map::{Map, in_dir, segment_path};
use crate::corruption_kit::sample::{self, Building, Sample};
use crate::fixture::{DIR, ReadRecord, driven};

fn options(disk: &SimDisk) -> ReadOptions {
    ReadOptions::from(driven(disk).0)
}

fn records(found: esker_log::Salvage) -> BTreeSet<ReadRecord> {
    let records = found.map(Result::unwrap).filter_map(|found| match found {
        Salvaged::Record(record) => Some((record.seq.0, record.payload)),
        _ => None,
    });
    records.collect()
}

/// Every block that was in a segment file is still there, or quarantined. A footer holds nothing
/// that the units do not.
fn no_block_is_destroyed(before: &SimDisk, after: &SimDisk, footers: &Map) -> Result<(), String> {
    let room = in_dir("quarantine");
    let kept: Vec<(String, Vec<u8>)> = after
        .files(&room)
        .unwrap_or_default()
        .into_iter()
        .map(|name| (name.clone(), after.contents(&room.join(name)).unwrap()))
        .collect();
    for name in before.files(Path::new(DIR)).unwrap() {
        let Some(stem) = name.strip_suffix(".seg") else { continue };
        let number: u64 = stem.parse().unwrap();
        let old = before.contents(&in_dir(&name)).unwrap();
        let new = after.contents(&in_dir(&name)).unwrap_or_default();
        let segment = footers.segments.iter().find(|segment| segment.number == number);
        let footer = segment.and_then(|segment| segment.footer.clone()).unwrap_or(0..0);
        for (n, block) in old.chunks(BLOCK).enumerate() {
            let at = n * BLOCK;
            let is_there = new.get(at..at + block.len()) == Some(block);
            let is_kept = kept.iter().any(|(name, bytes)| {
                let (of, from) = name.strip_suffix(".bytes").unwrap().split_once('-').unwrap();
                let from: usize = from.split('-').next().unwrap().parse().unwrap();
                of == stem
                    && from <= at
                    && bytes.get(at - from..at - from + block.len()) == Some(block)
            });
            let is_blank = block.iter().all(|&byte| byte == 0);
            if !(is_there || is_kept || is_blank || footer.contains(&at)) {
                return Err(format!("the block at {at} of {name} is destroyed"));
            }
        }
    }
    Ok(())
}

/// Each range is reported with the records in it, where a unit header names them.
fn check(pristine: &Sample, disk: &SimDisk, is_named: bool) -> Result<(), String> {
    let before = records(salvage_log(DIR, options(disk)).unwrap());
    let harmed = disk.fork(2);
    let repaired = repair(DIR, options(disk)).map_err(|error| format!("{error:?}"))?;
    let in_log = records(salvage_log(DIR, options(disk)).unwrap());
    let mut after = in_log.clone();
    for range in &repaired.quarantined {
        let Some(file) = &range.kept_in else { continue };
        for record in records(salvage(file, options(disk)).unwrap()) {
            let mut ranges = repaired.quarantined.iter().filter(|of| !is_named || *of == range);
            let is_reported = ranges.any(|of| of.from.0 < record.0 && record.0 <= of.to.0);
            if before.contains(&record) && !in_log.contains(&record) && !is_reported {
                return Err(format!("{} is in {range:?} of {:?}", record.0, repaired.quarantined));
            }
            after.insert(record);
        }
    }
    let lost: Vec<u64> = before.difference(&after).map(|(seq, _)| *seq).collect();
    if !lost.is_empty() {
        return Err(format!("{lost:?} are lost; reported: {:?}", repaired.quarantined));
    }
    no_block_is_destroyed(&harmed, disk, &pristine.map)
}

/// The last unit of a segment is harmed, and so is the segment after it.
#[test]
fn what_could_be_read_before_a_repair_is_there_after_it() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed(), large()] {
        for pair in sample.map.segments.windows(2) {
            let (file, next) = (segment_path(pair[0].number), segment_path(pair[1].number));
            let Some(unit) = pair[0].units.last() else { continue };
            let end = (unit.at.start + unit.used) as u64;
            for first in [
                "nothing",
                "cut and no header",
                "cut its end",
                "cut half of it",
                "flip",
                "cut the footer",
            ] {
                for second in ["remove", "empty", "short", "header", "header and unit", "one block"]
                {
                    let disk = sample.disk.fork(1);
                    match first {
                        "cut and no header" => {
                            disk.truncate(&file, end - 3).unwrap();
                            disk.flip_bit(&file, unit.at.start as u64 * 8 + 100).unwrap();
                        }
                        "cut its end" => disk.truncate(&file, end - 3).unwrap(),
                        "cut half of it" => {
                            disk.truncate(&file, (unit.at.start as u64 + end) / 2).unwrap();
                        }
                        "flip" => disk.flip_bit(&file, (end - 1) * 8).unwrap(),
                        "cut the footer" => disk.truncate(&file, unit.at.end as u64).unwrap(),
                        _ => {}
                    }
                    let zeros = vec![0; BLOCK];
                    match second {
                        "remove" => unlink(&disk, &next),
                        "empty" => disk.truncate(&next, 0).unwrap(),
                        "short" => disk.truncate(&next, 822).unwrap(),
                        "one block" => {
                            disk.truncate(&next, BLOCK as u64).unwrap();
                            disk.flip_bit(&next, 300).unwrap();
                        }
                        "header" => disk.overwrite(&next, 0, &zeros).unwrap(),
                        _ => {
                            disk.overwrite(&next, 0, &zeros).unwrap();
                            disk.flip_bit(&next, BLOCK as u64 * 8 + 100).unwrap();
                        }
                    }
                    let name = format!(
                        "{}, segment {}: {first}; the next one: {second}",
                        sample.name, pair[0].number
                    );
                    cases.run(name, || check(&sample, &disk, first != "cut and no header"));
                }
            }
        }
    }
    cases.finish(150);
}

/// Three segments whose last units have many records.
fn large() -> Sample {
    let mut log = Building::new("large");
    log.open(40);
    for _ in 0..6 {
        log.several(&[700; 20]).run();
    }
    log.close();
    log.done(true)
}

/// The newest segment lost its header, and what follows its last unit is no corruption: a torn
/// unit, or anything else.
#[test]
fn torn_tail_of_a_segment_that_is_written_again_is_quarantined() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::torn()] {
        let file = sample.newest_path();
        let end = sample.map.newest().end;
        let torn = sample.disk.fork(1);
        torn.overwrite(&file, (end + 2 * BLOCK) as u64, b"torn").unwrap();
        torn.flip_bit(&file, 60 * 8).unwrap();
        cases.run(sample.name, || check(&sample, &torn, true));
        // After a footer.
        let first = &sample.map.segments[0];
        let Some(footer) = &first.footer else { continue };
        let disk = sample.disk.fork(1);
        let after = footer.end.next_multiple_of(format::BLOCK) as u64;
        disk.overwrite(&segment_path(first.number), after, b"anything").unwrap();
        disk.flip_bit(&segment_path(first.number), 60 * 8).unwrap();
        cases.run(format!("{}, after the footer", sample.name), || check(&sample, &disk, true));
    }
    cases.finish(3);
}
