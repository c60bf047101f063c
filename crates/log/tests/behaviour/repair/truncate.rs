//! The operator would rather have a log without a gap than the records after the corruption.
//!
//! Guards: a cut that keeps corruption, or takes valid records before it; claims of what was cut
//! off that make the log count as corrupted for ever; bytes that are gone without having been
//! quarantined; records that were cut off and come back after new ones.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::Disk;

use crate::corruption_kit;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::edits::{cut, flip, overwrite};
use crate::corruption_kit::format::BLOCK;
use crate::corruption_kit::map::segment_path;
use crate::corruption_kit::repairs::{Loss, truncate};
use crate::corruption_kit::sample::{self, Sample};

/// The units of a segment from an offset on, and all of later segments.
fn from(sample: &Sample, number: u64, at: usize) -> Vec<Loss> {
    let later = sample.map.segments.iter().filter(|segment| segment.number >= number);
    let units = later.flat_map(|segment| {
        let first = if segment.number == number { at } else { 0 };
        segment.units.iter().filter(move |unit| unit.at.start >= first).map(|unit| Loss {
            segment: segment.number,
            bytes: unit.at.clone(),
            records: (unit.prev_seq, unit.last_seq),
        })
    });
    units.collect()
}

fn truncate_all(sample: &Sample) -> Cases {
    let mut cases = Cases::default();
    for segment in &sample.map.segments {
        let file = segment_path(segment.number);
        for (disk, edit) in [flip(sample, &file, 70, 3), overwrite(sample, &file, 0, &[0; BLOCK])] {
            if sample.map.is_headless_tail(&edit.file, &edit.at) {
                continue;
            }
            let lost = from(sample, segment.number, 0);
            cases.run(format!("{}, {edit}", sample.name), || {
                truncate(sample, &disk, segment.prev_seq, &lost)
            });
        }
        for unit in &segment.units {
            for byte in [unit.at.start + 5, unit.at.start + unit.used - 1] {
                let (disk, edit) = flip(sample, &file, byte as u64, 3);
                if unit.last_seq > sample.map.durable_bound_without(&edit.file, &edit.at) {
                    continue;
                }
                let lost = from(sample, segment.number, unit.at.start);
                cases.run(format!("{}, {edit}", sample.name), || {
                    truncate(sample, &disk, unit.prev_seq, &lost)
                });
            }
        }
    }
    cases
}

#[test]
fn truncation_of_a_closed_log() {
    truncate_all(&sample::closed()).finish(20);
}

#[test]
fn truncation_of_a_killed_log() {
    truncate_all(&sample::killed()).finish(15);
}

#[test]
fn truncation_of_a_torn_log() {
    truncate_all(&sample::torn()).finish(15);
}

#[test]
fn truncation_of_a_log_of_one_segment() {
    truncate_all(&sample::lonely()).finish(8);
}

#[test]
fn truncation_after_lost_units_and_a_lost_segment() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        let [.., before, newest] = &sample.map.segments[..] else { continue };
        // Their headers are valid, and claim what is given up.
        let (disk, edit) = overwrite(&sample, &segment_path(newest.number), 0, &[0x55; 3 * BLOCK]);
        for unit in &before.units {
            disk.flip_bit(&segment_path(before.number), (unit.at.start as u64 + 80) * 8).unwrap();
        }
        cases.run(format!("{}, {edit}", sample.name), || {
            truncate(&sample, &disk, before.prev_seq, &from(&sample, before.number, 0)[..1])
        });
    }
    cases.finish(2);
}

#[test]
fn truncation_between_an_emptied_segment_and_orphan_units() {
    let sample = sample::killed();
    let [.., before, newest] = &sample.map.segments[..] else { panic!("too few segments") };
    let (disk, _) = cut(&sample, &segment_path(before.number), 0);
    disk.overwrite(&segment_path(newest.number), 0, &[0x55; BLOCK]).unwrap();
    disk.open_dir(std::path::Path::new(corruption_kit::DIR)).unwrap().unlink("mark").unwrap();
    truncate(&sample, &disk, before.prev_seq, &[]).unwrap();
}
