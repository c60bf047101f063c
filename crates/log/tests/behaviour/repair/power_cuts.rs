//! Power fails in the middle of a repair, at every operation; then the repair is done again.
//!
//! Guards: corrupted bytes removed before their copy is durable; a segment that is neither the
//! corrupted one nor the repaired; valid records lost between the two; a half-done cut that cannot
//! be continued, or looks as if nothing had been lost.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::{Engine, Error, Log, OnCorruption, OpenCheck, repair};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::edits::{Edit, flip, overwrite};
use crate::corruption_kit::format::BLOCK;
use crate::corruption_kit::map::{in_dir, segment_path};
use crate::corruption_kit::reading::Item;
use crate::corruption_kit::repairs::{Loss, check_log, open, quarantined_bytes, verifies, without};
use crate::corruption_kit::sample::{self, Sample, options};

/// Who mends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mending {
    Repair,
    Opening(OnCorruption),
}

impl Mending {
    fn run(self, disk: &SimDisk) -> Result<(), String> {
        let engine = Engine::manual();
        let mut options = options(&disk.process(), &engine);
        options.check = OpenCheck::Full;
        let outcome = match self {
            Mending::Repair => repair(DIR, &options).map(drop).map_err(Error::from),
            Mending::Opening(on_corruption) => {
                options.on_corruption = on_corruption;
                Log::builder(DIR).options(options).open().map(drop).map_err(Error::from)
            }
        };
        engine.stop();
        outcome.map_err(|error| format!("{self:?}: {error:?}"))
    }
}

struct CorruptedSample {
    disk: SimDisk,
    edit: Edit,
    quarantined: Vec<Item>,
    lost: Vec<Loss>,
    truncated: Vec<Item>,
    cut_off: Vec<Loss>,
}

fn corrupted(sample: &Sample) -> Vec<CorruptedSample> {
    // The mark page is never synced: were it lost with the first cut, nothing would say any more
    // that the last unit was durable.
    let disk = sample.disk.fork(1);
    disk.power_cut(Persist::Everything);
    disk.power_on();
    let sample = &Sample { disk, ..sample.clone() };
    let mut all = Vec::new();
    let mut add = |(disk, edit): (SimDisk, Edit), keeps: u64| {
        let loss = sample.loss(&edit.file, edit.at.start);
        let lost = Vec::from_iter(loss.clone());
        let records: Vec<_> = lost.iter().map(|loss| loss.records).collect();
        let kept = sample.items.iter().filter(|item| item.last() <= keeps);
        let cut_off = sample.map.segments.iter().flat_map(|segment| {
            segment.units.iter().filter(|unit| unit.prev_seq >= keeps).map(|unit| Loss {
                segment: segment.number,
                bytes: unit.at.clone(),
                records: (unit.prev_seq, unit.last_seq),
            })
        });
        all.push(CorruptedSample {
            disk,
            edit,
            quarantined: without(&sample.items, &records),
            lost,
            truncated: kept.cloned().collect(),
            cut_off: cut_off.collect(),
        });
    };
    let (second, newest) = (&sample.map.segments[1], sample.map.newest());
    for (segment, unit) in [(second, &second.units[0]), (newest, &newest.units[0])] {
        let file = segment_path(segment.number);
        add(flip(sample, &file, unit.at.start as u64 + 80, 1), unit.prev_seq);
    }
    let last = newest.units.last().unwrap();
    if sample.map.durable_bound_without(&sample.newest_path(), &(last.at.start as u64..u64::MAX))
        >= last.last_seq
    {
        let file = sample.newest_path();
        add(flip(sample, &file, last.at.start as u64 + 80, 1), last.prev_seq);
    }
    let file = segment_path(second.number);
    add(overwrite(sample, &file, 0, &[7; BLOCK]), second.prev_seq);
    add(flip(sample, &in_dir("manifest"), 30, 1), u64::MAX);
    all
}

/// Cuts the power at an operation, continues, and gives whether the mending came so far.
fn cut_and_mend(
    corrupted: &CorruptedSample,
    mending: Mending,
    point: CutPoint,
    persist: Persist,
) -> Result<bool, String> {
    let disk = corrupted.disk.fork(operation(point));
    disk.cut_power_at(point, persist);
    let outcome = mending.run(&disk);
    let reached = !disk.is_on();
    if reached {
        disk.power_on();
        mending.run(&disk).map_err(|error| format!("again: {error}"))?;
    } else {
        disk.cancel_cut();
        outcome?;
    }
    let (items, lost) = match mending {
        Mending::Opening(OnCorruption::Truncate) => (&corrupted.truncated, &corrupted.cut_off),
        _ => (&corrupted.quarantined, &corrupted.lost),
    };
    check_log(&open(&disk, OnCorruption::Fail)?, items)?;
    quarantined_bytes(&corrupted.disk, &disk, lost)?;
    verifies(&disk, items)?;
    Ok(reached)
}

fn operation(point: CutPoint) -> u64 {
    match point {
        CutPoint::Before(n) | CutPoint::During(n) | CutPoint::BeforeRead(n) => n,
    }
}

fn cut_everywhere(sample: &Sample, mending: Mending) -> Cases {
    let mut cases = Cases::default();
    for corrupted in corrupted(sample) {
        for n in corrupted.disk.operations().. {
            let mut reached = false;
            for (point, persist) in [
                (CutPoint::Before(n), Persist::Nothing),
                (CutPoint::Before(n), Persist::Everything),
                (CutPoint::During(n), Persist::Torn),
            ] {
                let name = format!("{}, {}, {point:?}, {persist:?}", sample.name, corrupted.edit);
                cases.run(name, || {
                    reached |= cut_and_mend(&corrupted, mending, point, persist)?;
                    Ok(())
                });
            }
            if !reached {
                break;
            }
        }
    }
    cases
}

#[test]
fn power_cut_in_repair() {
    cut_everywhere(&sample::closed(), Mending::Repair).finish(150);
    cut_everywhere(&sample::killed(), Mending::Repair).finish(150);
}

#[test]
fn power_cut_in_an_open_that_quarantines() {
    cut_everywhere(&sample::killed(), Mending::Opening(OnCorruption::Quarantine)).finish(150);
}

#[test]
fn power_cut_in_an_open_that_truncates() {
    cut_everywhere(&sample::closed(), Mending::Opening(OnCorruption::Truncate)).finish(150);
    cut_everywhere(&sample::killed(), Mending::Opening(OnCorruption::Truncate)).finish(150);
}
