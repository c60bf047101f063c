//! Files that hold the content of other segments, beside a file that is missing.
//!
//! Guards: a repair that put the segments where the next valid one leaves no room for them. It said
//! that no record was lost, `verify` found nothing, and the log did not open.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;

use esker_disk::sim::SimDisk;
use esker_log::{Append, Engine, Log, Start, repair, verify};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::edits::{put, unlink};
use crate::corruption_kit::map::{Map, segment_path};
use crate::corruption_kit::reading::{self, Item};
use crate::corruption_kit::sample::{options, payload};

/// A closed log of six full segments or more.
fn log_of_segments() -> (SimDisk, Map) {
    let disk = SimDisk::new(3);
    let engine = Engine::manual();
    let log = Log::builder(DIR).options(options(&disk, &engine)).open().unwrap();
    for unit in 0..90u64 {
        let payloads: Vec<_> =
            (0..6).map(|n| payload("segments", unit * 6 + n, 60 + n as usize)).collect();
        log.write(Append::records(&payloads)).unwrap().blocking_wait().unwrap();
    }
    engine.run();
    log.close().unwrap();
    engine.stop();
    let map = Map::read(&disk);
    assert!(map.segments.len() >= 6, "{} segments", map.segments.len());
    (disk, map)
}

fn content(disk: &SimDisk, number: u64) -> Vec<u8> {
    disk.contents(&segment_path(number)).unwrap()
}

/// Its units without the footer.
fn without_footer(disk: &SimDisk, map: &Map, number: u64) -> Vec<u8> {
    let segment = map.segments.iter().find(|segment| segment.number == number).unwrap();
    let end = segment.units.last().unwrap().at.end;
    content(disk, number)[..end].to_vec()
}

fn read_all(disk: &SimDisk) -> Result<Vec<Item>, String> {
    let engine = Engine::manual();
    let log = Log::builder(DIR).options(options(&disk.fork(5), &engine)).open();
    let log = log.map_err(|error| format!("opening: {error}"))?;
    let read = reading::of_log(&log, Start::Oldest)?;
    match read.error {
        Some(error) => Err(format!("reading: {error}")),
        None => Ok(read.items),
    }
}

/// `verify` finds it, one repair mends it, and what it reports as lost is what is lost: the records
/// of these segments.
fn is_repaired(disk: &SimDisk, map: &Map, original: &[Item], gone: &[u64]) -> Result<(), String> {
    let engine = Engine::manual();
    let options = || options(disk, &engine);
    let report = verify(DIR, options()).map_err(|error| format!("{error}"))?;
    if report.corruption.is_empty() {
        return Err("verify finds nothing".into());
    }
    let repaired = repair(DIR, options()).map_err(|error| format!("{error}"))?;
    let report = verify(DIR, options()).map_err(|error| format!("{error}"))?;
    if let Some(first) = report.corruption.first() {
        return Err(format!("after the repair, verify finds {first}"));
    }
    let items = read_all(disk)?;
    let there = |item: &&Item| matches!(item, Item::Record { .. });
    let left: BTreeSet<u64> = items.iter().filter(there).map(Item::last).collect();
    let lost: BTreeSet<u64> =
        original.iter().map(Item::last).filter(|seq| !left.contains(seq)).collect();
    let reported: BTreeSet<u64> =
        repaired.quarantined.iter().flat_map(|range| range.from.0 + 1..=range.to.0).collect();
    if reported != lost {
        return Err(format!("lost {lost:?}, reported {reported:?}: {:?}", repaired.quarantined));
    }
    let segments = map.segments.iter().filter(|segment| gone.contains(&segment.number));
    let of_gone: BTreeSet<u64> = segments
        .flat_map(|segment| segment.prev_seq + 1..=segment.units.last().unwrap().last_seq)
        .collect();
    if lost != of_gone {
        return Err(format!("lost {lost:?}, and gone are {of_gone:?}"));
    }
    let again = repair(DIR, options()).map_err(|error| format!("{error}"))?;
    match again.quarantined.is_empty() {
        true => Ok(()),
        false => Err(format!("a second repair finds {:?}", again.quarantined)),
    }
}

/// A file that holds another whole segment after its own units has lost its footer, and the next
/// file is missing.
#[test]
fn a_segment_that_another_follows_before_a_missing_one() {
    let (pristine, map) = log_of_segments();
    let original = read_all(&pristine).unwrap();
    let mut cases = Cases::default();
    for copied in [1, 4, 5] {
        let disk = pristine.fork(1);
        let bytes = [without_footer(&disk, &map, 2), content(&disk, copied)].concat();
        put(&disk, &segment_path(2), &bytes);
        unlink(&disk, &segment_path(3));
        cases.run(format!("2 is followed by {copied}, and 3 is missing"), || {
            is_repaired(&disk, &map, &original, &[3])
        });
    }
    cases.finish(3);
}

/// How often each of the files holds the other segment.
#[test]
fn consecutive_files_that_hold_other_segments() {
    let (pristine, map) = log_of_segments();
    let original = read_all(&pristine).unwrap();
    let mut cases = Cases::default();
    for (first, times) in [(1, 1), (2, 1), (1, 2), (2, 2), (2, 3)] {
        for held in [[first + 1, first + 2, first], [4, 4, 4], [1, 1, 1], [5, 5, 5]] {
            let disk = pristine.fork(1);
            let of_others = (first..first + 3).zip(held).filter(|(number, of)| number != of);
            let of_others: Vec<(u64, u64)> = of_others.collect();
            for (number, of) in &of_others {
                put(&disk, &segment_path(*number), &content(&pristine, *of).repeat(times));
            }
            let gone: Vec<u64> = of_others.iter().map(|(number, _)| *number).collect();
            cases.run(format!("{gone:?} hold {held:?} {times} times"), || {
                is_repaired(&disk, &map, &original, &gone)
            });
        }
    }
    cases.finish(20);
}

/// A header is lost, and so are those of the next two; each file holds its own units, and another
/// segment after them.
#[test]
fn consecutive_files_without_headers_that_other_segments_follow() {
    let (pristine, map) = log_of_segments();
    let original = read_all(&pristine).unwrap();
    let mut cases = Cases::default();
    for first in [1, 2] {
        for (has_footers, followed_by) in [(true, 1), (false, 1), (true, 5), (false, 5)] {
            let disk = pristine.fork(1);
            for number in first..first + 3 {
                let own = match has_footers {
                    true => content(&pristine, number),
                    false => without_footer(&pristine, &map, number),
                };
                put(&disk, &segment_path(number), &[own, content(&pristine, followed_by)].concat());
                disk.flip_bit(&segment_path(number), 60 * 8).unwrap();
            }
            cases.run(format!("{first} and later, {has_footers}, by {followed_by}"), || {
                is_repaired(&disk, &map, &original, &[])
            });
        }
    }
    cases.finish(8);
}
