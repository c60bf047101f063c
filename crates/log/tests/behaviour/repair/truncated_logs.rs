//! Corruption to the oldest segment of a log of which the beginning was dropped.
//!
//! Guards: a new header that starts the log at position 0; a floor inside a commit unit that makes
//! a valid unit look like one of another session; dropped records that come back through a repair.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::sim::SimDisk;
use esker_log::{
    Engine, Log, OnCorruption, OpenCheck, ReadError, ReadOnlyLog, Seq, Start, repair, verify,
};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::format::BLOCK;
use crate::corruption_kit::map::{Map, segment_path};
use crate::corruption_kit::reading::{self, Item};
use crate::corruption_kit::repairs::without;
use crate::corruption_kit::sample::{self, Sample, options};

/// The sample without everything below a record.
fn dropped_below(sample: &Sample, seq: u64, clean: bool) -> SimDisk {
    let disk = sample.disk.fork(seq);
    let engine = Engine::manual();
    let log = Log::builder(DIR).options(options(&disk.process(), &engine)).open().unwrap();
    log.retention().truncate_before(seq).unwrap();
    if clean {
        log.close().unwrap();
    } else {
        disk.kill();
        disk.power_on();
    }
    disk
}

fn reads(log: &Log, items: &[Item]) -> Result<(), String> {
    let read = reading::of_log(log, Start::Oldest)?;
    if let Some(error) = read.error {
        return Err(format!("{error:?}"));
    }
    if read.items == items { Ok(()) } else { Err(format!("{} items", read.items.len())) }
}

fn check(disk: &SimDisk, items: &[Item], floor: u64) -> Result<(), String> {
    let engine = Engine::manual();
    let report = verify(DIR, options(disk, &engine)).map_err(|error| format!("{error:?}"))?;
    if let Some(damage) = report.corruption.first() {
        return Err(format!("verify finds {damage}"));
    }
    let mut options = options(disk, &engine);
    options.check = OpenCheck::Full;
    let log = Log::builder(DIR).options(options).open().map_err(|error| format!("{error:?}"))?;
    reads(&log, items)?;
    match log.read(floor) {
        Err(ReadError::Trimmed(_)) => {}
        other => return Err(format!("{floor} was dropped, and is {other:?}")),
    }
    if log.storage().metadata().after != Seq(floor) {
        return Err(format!("{:?}", log.storage().metadata()));
    }
    let last = log.durable();
    let ticket = log.append(b"on").and_then(|ticket| Ok(ticket.blocking_wait()?));
    match ticket {
        Ok(at) if at.seq.0 == last.0 + 1 => Ok(()),
        other => Err(format!("appending: {other:?}")),
    }
}

/// The positions of the records of the oldest segment, which a caller may have kept.
fn positions(disk: &SimDisk, below: u64) -> Vec<(u64, u64)> {
    let engine = Engine::manual();
    let reader = ReadOnlyLog::builder(DIR).options(options(disk, &engine)).open().unwrap();
    let mut stream = reader.stream(Start::Oldest).unwrap();
    let mut positions = Vec::new();
    while let Ok(Some(batch)) = stream.try_next() {
        let records = batch.iter().map(|record| (record.seq.0, record.position.0));
        positions.extend(records.filter(|(seq, _)| *seq <= below));
    }
    positions
}

/// A floor at the start of a segment, inside one between units, and inside a unit.
fn floors(sample: &Sample) -> Vec<u64> {
    let segment = &sample.map.segments[1];
    let inside = segment.units.iter().find(|unit| unit.records.len() > 1).unwrap();
    vec![segment.prev_seq, segment.units[0].last_seq, inside.records[0].seq]
}

#[test]
fn repair_of_the_oldest_header_above_the_trim_point() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        for floor in floors(&sample) {
            for clean in [true, false] {
                let disk = dropped_below(&sample, floor + 1, clean);
                let items: Vec<Item> =
                    sample.items.iter().filter(|item| item.last() > floor).cloned().collect();
                let file = segment_path(Map::read(&disk).segments[0].number);
                let last =
                    Map::read(&disk).segments[0].units.last().map_or(0, |unit| unit.last_seq);
                let before = positions(&disk, last);
                let len = disk.contents(&file).unwrap().len();
                disk.overwrite(&file, 0, &[0x5A; BLOCK]).unwrap();
                cases.run(format!("{}, floor {floor}, clean {clean}", sample.name), || {
                    let engine = Engine::manual();
                    let repaired = repair(DIR, options(&disk, &engine));
                    repaired.map_err(|error| format!("{error:?}"))?;
                    if disk.contents(&file).is_ok_and(|content| content.len() > len) {
                        return Err("the file grew".into());
                    }
                    if positions(&disk, last) != before {
                        return Err("the records are not where they were".into());
                    }
                    check(&disk, &items, floor)
                });
            }
        }
    }
    cases.finish(12);
}

#[test]
fn repair_of_a_unit_around_the_trim_point() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        for floor in floors(&sample) {
            let disk = dropped_below(&sample, floor + 1, true);
            let map = Map::read(&disk);
            for unit in &map.segments[0].units {
                let corrupted = disk.fork(1);
                let file = segment_path(map.segments[0].number);
                corrupted.flip_bit(&file, unit.at.start as u64 * 8 + 101).unwrap();
                let lost = (unit.prev_seq.max(floor), unit.last_seq);
                let items: Vec<Item> =
                    sample.items.iter().filter(|item| item.last() > floor).cloned().collect();
                let items = without(&items, &[lost]);
                for on_corruption in [OnCorruption::Fail, OnCorruption::Quarantine] {
                    let name = format!("{}, floor {floor}, {:?}", sample.name, unit.at);
                    cases.run(format!("{name}, {on_corruption:?}"), || {
                        let disk = corrupted.fork(2);
                        let engine = Engine::manual();
                        let mut options = options(&disk, &engine);
                        options.check = OpenCheck::Full;
                        options.on_corruption = on_corruption;
                        if on_corruption == OnCorruption::Fail {
                            let repaired = repair(DIR, &options);
                            repaired.map_err(|error| format!("{error:?}"))?;
                        } else {
                            drop(
                                Log::builder(DIR)
                                    .options(options)
                                    .open()
                                    .map_err(|error| format!("{error:?}"))?,
                            );
                        }
                        let items: Vec<Item> = items.iter().map(|item| clip(item, floor)).collect();
                        check_clipped(&disk, &items, floor)
                    });
                }
            }
        }
    }
    cases.finish(20);
}

/// A gap may begin below the floor.
fn clip(item: &Item, floor: u64) -> Item {
    match item {
        Item::Gap(from, to) => Item::Gap((*from).max(floor), *to),
        record @ Item::Record { .. } => record.clone(),
    }
}

fn check_clipped(disk: &SimDisk, items: &[Item], floor: u64) -> Result<(), String> {
    let engine = Engine::manual();
    let log = Log::builder(DIR)
        .options(options(disk, &engine))
        .open()
        .map_err(|error| format!("{error:?}"))?;
    let read = reading::of_log(&log, Start::Oldest)?;
    let got: Vec<Item> = read
        .items
        .iter()
        .map(|item| clip(item, floor))
        .filter(|item| item.last() > floor)
        .collect();
    let mut want = items.to_vec();
    want.dedup();
    match read.error {
        None if got == want => Ok(()),
        None => Err(format!("{got:?}\n instead of {want:?}").chars().take(600).collect()),
        Some(error) => Err(format!("{error:?}")),
    }
}
