//! Bytes past the end of the log that are not its own.
//!
//! Guards: garbage that makes recovery drop the records before it; a unit of an earlier use of the
//! file, whole and in the right place, that is taken for the next one; orphan units that stay in
//! the way of what is appended later, or come to life through it or through a repair.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::sim::SimDisk;
use esker_log::{Engine, Log, OnCorruption, PriorShutdown, verify};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::edits::{flip, overwrite};
use crate::corruption_kit::format::BLOCK;
use crate::corruption_kit::map::{Map, segment_path};
use crate::corruption_kit::repairs::{self, Repairing, check_log, continues, quarantine, verifies};
use crate::corruption_kit::sample::{self, Building, Sample, options};

/// Where the units of the newest segment end, and where its file does.
fn ends(sample: &Sample) -> (u64, u64) {
    let len = sample.disk.contents(&sample.newest_path()).unwrap().len();
    (sample.map.newest().end as u64, len as u64)
}

fn garbage(len: usize) -> Vec<u8> {
    sample::payload("garbage", 1, len)
}

/// Opens, reads all records, and continues. Returns the tail that recovery reports as truncated.
fn all_there(sample: &Sample, disk: &SimDisk) -> Result<Option<esker_log::TruncatedTail>, String> {
    let disk = disk.fork(5);
    let log = repairs::open(&disk, OnCorruption::Fail)?;
    check_log(&log, &sample.items)?;
    let cut = log.storage().recovery().truncated_tail.clone();
    let clean = log.storage().recovery().prior_shutdown == PriorShutdown::Clean;
    drop(log);
    if clean != sample.clean {
        return Err(format!("found clean: {clean}"));
    }
    continues(sample, disk, sample.items.clone())?;
    Ok(cut)
}

#[test]
fn garbage_past_the_end_is_reported_and_cut() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed(), sample::lonely()] {
        let (end, _) = ends(&sample);
        for len in [1, 3, 71, 72, 511, BLOCK, 3 * BLOCK] {
            let (disk, edit) = overwrite(&sample, &sample.newest_path(), end, &garbage(len));
            cases.run(format!("{}, {edit}", sample.name), || {
                let cut = all_there(&sample, &disk)?.ok_or("the cut was not reported")?;
                let right = cut.file == edit.file && cut.offset == end && cut.bytes >= 1;
                if right { Ok(()) } else { Err(format!("{cut:?}")) }
            });
        }
    }
    cases.finish(21);
}

#[test]
fn bytes_that_grow_a_file_harm_nothing() {
    let mut cases = Cases::default();
    for sample in sample::all() {
        let newest = sample.map.newest().number;
        for segment in &sample.map.segments {
            let file = segment_path(segment.number);
            let len = sample.disk.contents(&file).unwrap().len() as u64;
            for stray in [garbage(3), garbage(BLOCK), vec![0; 3], vec![0; 2 * BLOCK]] {
                let (disk, edit) = overwrite(&sample, &file, len, &stray);
                let reported = stray[0] != 0 && segment.number == newest && sample.clean;
                cases.run(format!("{}, {edit}", sample.name), || {
                    let cut = all_there(&sample, &disk)?;
                    if reported && cut.is_none() {
                        Err("the cut was not reported".into())
                    } else {
                        Ok(())
                    }
                });
            }
        }
    }
    cases.finish(40);
}

/// A log that was closed in the middle of a segment, and two futures of it: what each wrote there
/// is valid in the same place of the same segment, after the same unit.
struct Fork {
    /// Closed where the two part.
    trunk: Sample,
    /// The bytes that the first future wrote there.
    dead: Vec<u8>,
    at: u64,
}

fn fork() -> Fork {
    let mut log = Building::new("fork");
    log.open(100).one(100).several(&[5000, 20]).one(300).close();
    let parting = log.done(true);
    // Opened and closed once more: the manifest knows the session of both futures.
    let mut log = Building::on("trunk", parting.disk.fork(2), parting.items.clone());
    log.open(100).close();
    let trunk = log.done(true);
    let at = trunk.map.newest().end as u64;
    let mut first = Building::on("first", parting.disk.fork(1), parting.items.clone());
    first.open(100).several(&[40, 5000]).one(60).one(61).close();
    let content = first.disk.contents(&trunk.newest_path()).unwrap();
    Fork { at, dead: content[at as usize..].to_vec(), trunk }
}

/// The number of valid units that the map finds in the newest segment.
fn units(disk: &SimDisk) -> usize {
    Map::read(disk).newest().units.len()
}

#[test]
fn orphan_unit_after_the_clean_end_never_returns() {
    let Fork { trunk, dead, at } = fork();
    let (disk, _) = overwrite(&trunk, &trunk.newest_path(), at, &dead);
    assert!(units(&disk) > trunk.map.newest().units.len(), "the dead units are sound as such");

    let engine = Engine::manual();
    let report = verify(DIR, options(&disk, &engine)).unwrap();
    assert_eq!(report.last.0, trunk.last(), "verify counts what is not the log's");

    let cut = all_there(&trunk, &disk).unwrap().expect("the cut was not reported");
    assert_eq!((cut.offset, cut.bytes), (at, dead.len() as u64));
}

#[test]
fn orphan_unit_after_a_new_unit_never_returns() {
    let Fork { trunk, dead, at } = fork();
    let mut cases = Cases::default();
    // The new unit takes the same room as the first of the dead ones, so that the second of those
    // begins exactly at its end; or less, or more.
    for lens in [vec![41, 5000], vec![1], vec![9000, 9]] {
        for clean in [true, false] {
            cases.run(format!("units of {lens:?}, clean: {clean}"), || {
                let mut second = Building::on("second", trunk.disk.fork(2), trunk.items.clone());
                // The dead ones are of the session before.
                second.open(100).close();
                second.open(100).several(&lens);
                if clean {
                    second.close()
                } else {
                    second.kill()
                };
                let alive = second.done(clean);
                let end = alive.map.newest().end as u64;
                let Some(rest) = dead.get((end - at) as usize..) else { return Ok(()) };
                let (disk, _) = overwrite(&alive, &alive.newest_path(), end, rest);
                all_there(&alive, &disk)?;
                let mut third = Building::on("third", disk, alive.items.clone());
                third.reopen(100)?;
                third.several(&[41, 5000]).kill();
                third.reopen(100)
            });
        }
    }
    cases.finish(6);
}

#[test]
fn repair_elsewhere_in_the_segment_revives_no_orphan_unit() {
    let Fork { trunk, dead, at } = fork();
    let file = trunk.newest_path();
    let unit = trunk.map.newest().units[1].clone();
    let mut cases = Cases::default();
    for repairing in [Repairing::Function, Repairing::Opening] {
        let (disk, edit) = flip(&trunk, &file, unit.at.start as u64 + 200, 1);
        disk.overwrite(&file, at, &dead).unwrap();
        let loss = trunk.loss(&file, edit.at.start).unwrap();
        cases.run(format!("{repairing:?}"), || quarantine(&trunk, &disk, &[loss], repairing));
    }
    cases.finish(2);
}

#[test]
fn a_record_that_fills_its_block_has_no_successor_from_an_earlier_life() {
    // 72 bytes of unit, 16 of record: the payload ends on the border of a block, and the place of
    // the next unit holds one of an earlier use.
    let full = BLOCK - 72 - 16;
    let mut log = Building::new("borders");
    log.open(100).one(full).one(full).one(full).kill();
    let old = log.disk.contents(&segment_path(1)).unwrap();
    log.open(100).one(full).kill();
    let sample = log.done(false);
    let newest = sample.map.newest();
    assert_eq!(newest.units.last().unwrap().used, BLOCK, "the block is full");
    let (disk, _) = overwrite(&sample, &sample.newest_path(), newest.end as u64, &old[BLOCK..]);
    all_there(&sample, &disk).unwrap();
    verifies(&disk, &sample.items).unwrap();
}

#[test]
fn units_of_a_recycled_file_never_return() {
    // The file of a segment that left the log is used again, full of old units.
    let disk = SimDisk::new(3);
    let open = |disk: &SimDisk, engine: &Engine| {
        let mut options = options(disk, engine);
        options.retention.segments = Some(2);
        Log::builder(DIR).options(options).open().unwrap()
    };
    let engine = Engine::manual();
    let log = open(&disk.process(), &engine);
    for n in 0..60u64 {
        log.append(sample::payload("recycled", n, 4000)).unwrap().blocking_wait().unwrap();
        engine.run();
    }
    let first = log.storage().metadata().after.0;
    assert!(first > 0, "nothing was dropped");
    disk.kill();
    drop(log);
    disk.power_on();
    let engine = Engine::manual();
    let log = open(&disk, &engine);
    assert_eq!(log.durable().0, 60);
    for seq in log.storage().metadata().after.0 + 1..=60 {
        assert_eq!(&*log.read(seq).unwrap(), sample::payload("recycled", seq - 1, 4000));
    }
}
