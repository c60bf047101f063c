//! A corrupted commit unit, or a corrupted header, and everything else comes through a repair.
//!
//! Guards: a repair that loses valid records, or leaves corruption behind; corrupted bytes that are
//! not quarantined; readers who fall silent at a gap, meet it elsewhere, or meet it when they asked
//! for later records; dead units that come back with what is appended later.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

use esker_disk::sim::SimDisk;

use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::edits::{Edit, flip, overwrite};
use crate::corruption_kit::format::BLOCK;
use crate::corruption_kit::map::{in_dir, segment_path};
use crate::corruption_kit::repairs::{Repairing, quarantine};
use crate::corruption_kit::sample::{self, Sample};

/// One harm of each kind in each header and unit of the sample.
fn edits(sample: &Sample) -> Vec<(SimDisk, Edit)> {
    let mut edits = Vec::new();
    for segment in &sample.map.segments {
        let file = segment_path(segment.number);
        edits.extend([0, 8, 13, 50, 2000].map(|byte| flip(sample, &file, byte, 3)));
        edits.push(overwrite(sample, &file, 0, &[0; BLOCK]));
        for unit in &segment.units {
            let mut bytes = vec![unit.at.start, unit.at.start + 9, unit.at.end - 1];
            for record in &unit.records {
                bytes.extend([record.at.start, record.at.end - 1]);
            }
            bytes.dedup();
            edits.extend(bytes.iter().map(|byte| flip(sample, &file, *byte as u64, 4)));
            let garbage: Vec<u8> = (0..unit.at.len()).map(|n| (n * 7 % 251) as u8).collect();
            edits.push(overwrite(sample, &file, unit.at.start as u64, &garbage));
            edits.push(overwrite(sample, &file, unit.at.start as u64, &[0; BLOCK]));
            edits.push(overwrite(sample, &file, (unit.at.end - BLOCK) as u64, &[0; BLOCK]));
        }
    }
    edits
}

fn repair_all(sample: &Sample) -> Cases {
    let mut cases = Cases::default();
    for (disk, edit) in edits(sample) {
        let loss = sample.loss(&edit.file, edit.at.start);
        let claim = sample.map.durable_bound_without(&edit.file, &edit.at);
        let headless = sample.map.is_headless_tail(&edit.file, &edit.at);
        if headless || loss.as_ref().is_some_and(|loss| loss.records.1 > claim) {
            // Nothing that is left says that the unit was durable: a torn tail, and no corruption.
            continue;
        }
        let loss: Vec<_> = loss.into_iter().collect();
        for how in [Repairing::Function, Repairing::Opening] {
            cases.run(format!("{}, {edit}, {how:?}", sample.name), || {
                quarantine(sample, &disk, &loss, how)
            });
        }
    }
    cases
}

#[test]
fn repair_of_a_closed_log_keeps_valid_units() {
    repair_all(&sample::closed()).finish(100);
}

#[test]
fn repair_of_a_killed_log_keeps_valid_units() {
    repair_all(&sample::killed()).finish(100);
}

#[test]
fn repair_of_a_torn_log_keeps_valid_units() {
    repair_all(&sample::torn()).finish(100);
}

#[test]
fn repair_of_a_log_of_one_segment_keeps_valid_units() {
    repair_all(&sample::lonely()).finish(20);
}

#[test]
fn corrupted_manifest_is_rebuilt() {
    let mut cases = Cases::default();
    for sample in sample::all() {
        let manifest: PathBuf = in_dir("manifest");
        for byte in [0, 8, 13, 17, 25, 40, 60, 70, 91] {
            let (disk, edit) = flip(&sample, &manifest, byte, 2);
            for how in [Repairing::Function, Repairing::Opening] {
                cases.run(format!("{}, {edit}, {how:?}", sample.name), || {
                    quarantine(&sample, &disk, &[], how)
                });
            }
        }
    }
    cases.finish(60);
}
