//! Corruption to a log that was repaired before: in other units, in the gap itself, beside it, and
//! several corruptions at once.
//!
//! Guards: a second repair that forgets the first gap, or puts its own kept bytes over those of the
//! first; a gap that cannot be repaired because it is no unit of records.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use esker_disk::Disk;
use esker_disk::sim::SimDisk;
use esker_log::{Engine, LogError, OnCorruption, RepairError, repair};

use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::edits::{cut, flip, put};
use crate::corruption_kit::format::{BLOCK, Segment, Unit};
use crate::corruption_kit::map::{in_dir, segment_path};
use crate::corruption_kit::repairs::{Loss, Repairing, quarantine, without};
use crate::corruption_kit::sample::{self, Building, Sample, options};
use crate::corruption_kit::{self, DIR, repairs};

/// Everything under `quarantine/`.
fn kept(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let room = in_dir("quarantine");
    let names = disk.files(&room).unwrap_or_default();
    names
        .into_iter()
        .map(|name| (name.clone(), disk.contents(&room.join(&name)).unwrap()))
        .collect()
}

fn nothing_is_overwritten(before: &SimDisk, after: &SimDisk) -> Result<(), String> {
    let contents: Vec<Vec<u8>> = kept(after).into_values().collect();
    for (name, content) in kept(before) {
        if !contents.contains(&content) {
            return Err(format!("{name} was quarantined before and is not there any more"));
        }
    }
    Ok(())
}

#[test]
fn repair_of_a_repaired_log() {
    let mut cases = Cases::default();
    let sample = sample::quarantined();
    for segment in &sample.map.segments {
        for unit in &segment.units {
            let file = segment_path(segment.number);
            let (disk, edit) = flip(&sample, &file, unit.at.start as u64 + 30, 2);
            let loss = sample.loss(&file, edit.at.start).unwrap();
            for repairing in [Repairing::Function, Repairing::Opening] {
                cases.run(format!("{edit}, gap: {}, {repairing:?}", unit.gap), || {
                    quarantine(&sample, &disk, std::slice::from_ref(&loss), repairing)?;
                    let repaired = disk.fork(1);
                    let engine = Engine::manual();
                    let done = repair(DIR, options(&repaired, &engine));
                    done.map_err(|error| format!("{error:?}"))?;
                    nothing_is_overwritten(&disk, &repaired)
                });
            }
        }
    }
    cases.finish(20);
}

#[test]
fn repair_of_the_same_offset_again() {
    // Each repair of a gap leaves a gap in the same place, whose header is corrupted next.
    let sample = sample::closed();
    let segment = &sample.map.segments[1];
    let unit = segment.units[0].clone();
    let file = segment_path(segment.number);
    let (disk, edit) = flip(&sample, &file, unit.at.start as u64 + 100, 2);
    let loss = sample.loss(&file, edit.at.start).unwrap();
    let items = without(&sample.items, &[loss.records]);
    let first = disk.fork(1);
    let engine = Engine::manual();
    for round in 0..3 {
        let before = disk.fork(2);
        let repaired = repair(DIR, options(&disk, &engine)).unwrap();
        assert_eq!(repaired.quarantined.len(), 1, "round {round}");
        nothing_is_overwritten(&before, &disk).unwrap();
        repairs::verifies(&disk, &items).unwrap();
        disk.flip_bit(&file, unit.at.start as u64 * 8 + 99).unwrap();
    }
    repair(DIR, options(&disk, &engine)).unwrap();
    let stored = first.contents(&file).unwrap()[loss.bytes.clone()].to_vec();
    assert!(
        kept(&disk).into_values().any(|kept| kept == stored),
        "the records are not kept any more"
    );
    repairs::check_log(&repairs::open(&disk, OnCorruption::Fail).unwrap(), &items).unwrap();
}

#[test]
fn kept_bytes_survive_a_cut_that_gives_numbers_again() {
    // Truncation removes segments; were their numbers given again, the next corruption in the same
    // place would be kept under the same name.
    let sample = sample::closed();
    let disk = sample.disk.fork(1);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for round in 0..3u64 {
        let map = corruption_kit::map::Map::read(&disk);
        let file = segment_path(map.newest().number);
        disk.flip_bit(&file, (4096 + 100) * 8 + round).unwrap();
        let corrupted = disk.contents(&file).unwrap();
        let log = repairs::open(&disk, OnCorruption::Truncate).unwrap();
        log.append(sample::payload("again", round, 900)).unwrap().blocking_wait().unwrap();
        log.close().unwrap();
        seen.push(corrupted[4096..8192].to_vec());
        let all = kept(&disk);
        for (n, unit) in seen.iter().enumerate() {
            let there =
                all.values().any(|kept| kept.windows(4096).step_by(4096).any(|w| w == unit));
            assert!(there, "what was quarantined in round {n} is gone in round {round}");
        }
    }
}

#[test]
fn repair_of_a_header_and_a_unit() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        for segment in &sample.map.segments {
            for loss in losses(&sample) {
                let file = segment_path(loss.segment);
                let (disk, edit) = flip(&sample, &file, loss.bytes.start as u64 + 5, 0);
                disk.flip_bit(&segment_path(segment.number), 500).unwrap();
                if loss.records.1 > sample.map.durable_bound_without(&edit.file, &edit.at) {
                    continue;
                }
                let name = format!("{}, {edit} and header {}", sample.name, segment.number);
                cases.run(name, || quarantine(&sample, &disk, &[loss], Repairing::Function));
            }
        }
    }
    cases.finish(60);
}

/// The records that are lost with each unit.
fn losses(sample: &Sample) -> Vec<Loss> {
    let of_segment = |segment: &Segment| {
        let number = segment.number;
        let loss = move |unit: &Unit| Loss {
            segment: number,
            bytes: unit.at.clone(),
            records: (unit.prev_seq, unit.last_seq),
        };
        segment.units.iter().map(loss).collect::<Vec<_>>()
    };
    sample.map.segments.iter().flat_map(of_segment).collect()
}

/// All pairs of units, next to each other and apart.
fn pairs(sample: &Sample) -> Vec<(Loss, Loss)> {
    let all = losses(sample);
    let pair = |n: usize, m: usize| Some((all.get(n)?.clone(), all.get(m)?.clone()));
    (0..all.len()).flat_map(|n| [pair(n, n + 1), pair(n, n + 3)]).flatten().collect()
}

#[test]
fn repair_of_two_corrupted_places() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        for (a, b) in pairs(&sample) {
            let (disk, edit) = flip(&sample, &segment_path(a.segment), a.bytes.start as u64 + 5, 0);
            disk.flip_bit(&segment_path(b.segment), b.bytes.start as u64 * 8 + 70).unwrap();
            let lost = [a, b];
            cases.run(format!("{}, {edit} and {:?}", sample.name, lost[1].bytes), || {
                quarantine(&sample, &disk, &lost, Repairing::Function)
            });
        }
    }
    cases.finish(30);
}

/// Everything that is stored in a segment.
fn whole(sample: &Sample, segment: &Segment) -> Vec<Loss> {
    losses(sample).into_iter().filter(|loss| loss.segment == segment.number).collect()
}

/// Nothing is kept of a file that is empty.
fn unkept(losses: Vec<Loss>) -> Vec<Loss> {
    losses.into_iter().map(|loss| Loss { bytes: 0..0, ..loss }).collect()
}

#[test]
fn repair_of_the_manifest_and_a_header() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        for segment in &sample.map.segments {
            for repairing in [Repairing::Function, Repairing::Opening] {
                let (disk, edit) = flip(&sample, &in_dir("manifest"), 50, 1);
                disk.flip_bit(&segment_path(segment.number), 500).unwrap();
                let name = format!("{}, {edit} and header {}", sample.name, segment.number);
                cases.run(format!("{name}, {repairing:?}"), || {
                    quarantine(&sample, &disk, &[], repairing)
                });
            }
        }
    }
    cases.finish(20);
}

#[test]
fn repair_of_an_emptied_segment_and_the_next_header() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        for pair in sample.map.segments.windows(2) {
            for manifest in [false, true] {
                let (disk, edit) = cut(&sample, &segment_path(pair[0].number), 0);
                disk.flip_bit(&segment_path(pair[1].number), 500).unwrap();
                if manifest {
                    disk.flip_bit(&in_dir("manifest"), 400).unwrap();
                }
                let lost = unkept(whole(&sample, &pair[0]));
                let name = format!("{}, {edit} and header {}", sample.name, pair[1].number);
                cases.run(format!("{name}, manifest: {manifest}"), || {
                    quarantine(&sample, &disk, &lost, Repairing::Function)
                });
            }
        }
    }
    cases.finish(16);
}

#[test]
fn repair_of_a_header_and_the_end_of_the_file() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed()] {
        let segments = &sample.map.segments;
        for segment in &segments[..segments.len() - 1] {
            for end in [0].into_iter().chain(segment.units.iter().map(|unit| unit.at.start)) {
                let (disk, edit) = cut(&sample, &segment_path(segment.number), end as u64);
                if end > 0 {
                    disk.flip_bit(&segment_path(segment.number), 500).unwrap();
                }
                let mut lost = whole(&sample, segment);
                lost.retain(|loss| loss.bytes.start >= end);
                let lost = unkept(lost);
                cases.run(format!("{}, {edit} and its header", sample.name), || {
                    quarantine(&sample, &disk, &lost, Repairing::Function)
                });
            }
        }
    }
    cases.finish(20);
}

/// Seven or more segments. Each kill leaves numbers that no segment has.
fn with_free_numbers() -> Sample {
    let mut log = Building::new("free numbers");
    log.open(3).one(40).several(&[30, 0, 7]).one(5000).kill();
    for _ in 0..2 {
        log.open(3).several(&[5000, 60]).one(9).several(&[20, 5000, 4000]).one(80).kill();
    }
    log.done(false)
}

/// Files under the name of a segment that never existed.
fn unknown_files() -> [Vec<u8>; 5] {
    [vec![], vec![7; 100], vec![0; 4096], vec![7; 4096], vec![7; 3 * 4096]]
}

/// A file took the room of the segment before a lost header, whose valid units were then lost.
#[test]
fn files_that_are_no_segments_before_a_lost_header() {
    let mut cases = Cases::default();
    let sample = with_free_numbers();
    let mut below = 0;
    for segment in &sample.map.segments {
        let free: Vec<u64> = (below + 1..segment.number).collect();
        below = segment.number;
        let (Some(first), Some(last)) = (free.first(), free.last()) else { continue };
        for numbers in [vec![*first], vec![*last], free.clone()] {
            for unknown in unknown_files() {
                let path = segment_path(segment.number);
                let (disk, edit) = flip(&sample, &path, 8, 7);
                for number in &numbers {
                    put(&disk, &segment_path(*number), &unknown);
                }
                let name = format!("{edit}, {} bytes as {numbers:?}", unknown.len());
                for repairing in [Repairing::Function, Repairing::Opening] {
                    cases.run(format!("{name}, {repairing:?}"), || {
                        quarantine(&sample, &disk, &[], repairing)
                    });
                }
            }
        }
    }
    cases.finish(50);
}

/// As above, and the header or the last unit of the newest segment is corrupt.
#[test]
fn a_file_that_is_no_segment_after_the_newest() {
    let mut cases = Cases::default();
    let sample = with_free_numbers();
    let newest = sample.map.newest();
    let unit = newest.units.last().unwrap();
    let lost = Loss {
        segment: newest.number,
        bytes: unit.at.clone(),
        records: (unit.prev_seq, unit.last_seq),
    };
    for unknown in unknown_files() {
        for (byte, lost) in [(8, vec![]), (unit.at.start as u64 + 100, vec![lost.clone()])] {
            let (disk, edit) = flip(&sample, &sample.newest_path(), byte, 7);
            put(&disk, &segment_path(newest.number + 1), &unknown);
            cases.run(format!("{edit}, {} bytes after it", unknown.len()), || {
                quarantine(&sample, &disk, &lost, Repairing::Function)
            });
        }
    }
    cases.finish(10);
}

/// A directory has the name of a segment. It is no file to read or to remove.
#[test]
fn a_directory_before_a_lost_header_is_refused() {
    let sample = with_free_numbers();
    let numbers: Vec<u64> = sample.map.segments.iter().map(|segment| segment.number).collect();
    let free = numbers.windows(2).find(|pair| pair[0] + 1 < pair[1]).unwrap();
    let (disk, _) = flip(&sample, &segment_path(free[1]), 8, 7);
    let unknown = segment_path(free[1] - 1);
    let made = disk.open_dir(std::path::Path::new(DIR)).unwrap();
    made.create_dir(unknown.file_name().unwrap().to_str().unwrap()).unwrap();
    let before = disk.fingerprint();
    let refused = repair(DIR, options(&disk, &Engine::manual())).unwrap_err();
    assert!(
        matches!(&refused, RepairError::Log(LogError::Io(cause)) if cause.path() == unknown),
        "{refused:?}"
    );
    assert_eq!(disk.fingerprint(), before);
}

/// A gap is its header: what else it covers holds nothing, and may be missing.
#[test]
fn gap_at_the_end_is_valid_while_its_header_is_there() {
    let mut log = Building::new("gap at the end");
    log.open(100).one(40).one(9000).kill();
    let sample = log.done(false);
    let newest = sample.map.newest();
    let (file, unit) = (segment_path(newest.number), newest.units.last().unwrap());
    let (disk, _) = flip(&sample, &file, unit.at.start as u64 + 100, 2);
    let engine = Engine::manual();
    repair(DIR, options(&disk, &engine)).unwrap();
    assert_eq!(disk.contents(&file).unwrap().len(), unit.at.end);
    let items = without(&sample.items, &[(unit.prev_seq, unit.last_seq)]);

    let mut cases = Cases::default();
    let header = unit.at.start + 72;
    let blocks = (unit.at.start..=unit.at.end).step_by(BLOCK);
    let lengths = blocks.flat_map(|block| block.saturating_sub(1)..=block + 1);
    for length in lengths.chain(header - 1..=header + 1).filter(|length| *length <= unit.at.end) {
        let cut = disk.fork(length as u64);
        cut.truncate(&file, length as u64).unwrap();
        cases.run(format!("cut to {length} bytes"), || {
            if length >= header {
                repairs::verifies(&cut, &items)?;
                repairs::check_log(&repairs::open(&cut, OnCorruption::Fail)?, &items)?;
                return repairs::continues(&sample, cut, items.clone());
            }
            if repairs::verifies(&cut, &items).is_ok() {
                return Err("verify passes over a gap without its header".into());
            }
            match repairs::open(&cut, OnCorruption::Fail) {
                Ok(_) => Err("opening passes over a gap without its header".into()),
                Err(_) => Ok(()),
            }
        });
    }
    cases.finish(10);
}
