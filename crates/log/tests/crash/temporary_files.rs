//! A process dies with a file that did not get its name, and no later process continues what it
//! began: a repair is cut short and the corruption goes another way, or it was a probe of what the
//! disk can do.
//!
//! Guards: files aside that no later opening removes. What a recovery leaves aside, the next one
//! writes over, under the same number; these are the ones for which that does not hold.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_disk::{Disk, Op, OpenMode, write_all_at};
use esker_log::{Engine, Log, repair};
use esker_testkit::{Call, HookedDisk};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::map::segment_path;
use crate::corruption_kit::repairs::check_log;
use crate::corruption_kit::sample::{Sample, closed, killed, options};

const PERSISTS: [Persist; 3] = [Persist::Everything, Persist::Random, Persist::Torn];

fn aside(disk: &SimDisk) -> Vec<String> {
    let aside = |name: &String| name.ends_with(".new") || name.starts_with(".esker-probe-");
    disk.files(Path::new(DIR)).unwrap().into_iter().filter(aside).collect()
}

/// Opens the log, which is whole; then power fails, and comes back.
fn nothing_is_aside(sample: &Sample, disk: &SimDisk) -> Result<(), String> {
    let engine = Engine::manual();
    let log = Log::builder(DIR).options(options(&disk.process(), &engine)).open();
    let log = log.map_err(|error| format!("{error:?}"))?;
    check_log(&log, &sample.items)?;
    let open = aside(disk);
    disk.power_cut(Persist::Nothing);
    drop(log);
    engine.stop();
    disk.power_on();
    match (open, aside(disk)) {
        (open, cut) if open.is_empty() && cut.is_empty() => Ok(()),
        (open, cut) => Err(format!("{open:?} are there, and {cut:?} after a power cut")),
    }
}

/// A unit of the second segment is corrupted, the repair is cut at every operation, and then the
/// bytes come back. Gives in how many cases a segment was left aside.
fn cut_repairs(sample: &Sample, cases: &mut Cases) -> u64 {
    let mut left = 0;
    let segment = &sample.map.segments[1];
    let (file, bit) = (segment_path(segment.number), (segment.units[0].at.start as u64 + 80) * 8);
    // The mark page is never synced.
    sample.disk.power_cut(Persist::Everything);
    sample.disk.power_on();
    for operation in sample.disk.operations().. {
        let mut reached = false;
        for (persist, seed) in PERSISTS.into_iter().zip(0..) {
            let disk = sample.disk.fork(seed);
            disk.flip_bit(&file, bit).unwrap();
            disk.cut_power_at(CutPoint::Before(operation), persist);
            let engine = Engine::manual();
            drop(repair(DIR, options(&disk.process(), &engine)));
            if disk.is_on() {
                continue;
            }
            reached = true;
            disk.power_on();
            if !aside(&disk).iter().any(|name| name.ends_with(".seg.new")) {
                continue;
            }
            left += 1;
            disk.flip_bit(&file, bit).unwrap();
            cases.run(format!("{}, {operation}, {persist:?}", sample.name), || {
                nothing_is_aside(sample, &disk)
            });
        }
        if !reached {
            return left;
        }
    }
    left
}

#[test]
fn temporary_file_of_an_interrupted_repair_is_removed() {
    let mut cases = Cases::default();
    for sample in [closed(), killed()] {
        let left = cut_repairs(&sample, &mut cases);
        assert!(left > 5, "{}: a segment was left aside {left} times", sample.name);
    }
    cases.finish(10);
}

#[test]
fn temporary_file_of_a_probe_is_removed() {
    for sample in [closed(), killed()] {
        let disk = &sample.disk;
        let dir = disk.open_dir(Path::new(DIR)).unwrap();
        let probe = dir.open(".esker-probe-4711-0", OpenMode::create()).unwrap();
        write_all_at(&*probe, &[0xA5; 4096], 0).unwrap();
        dir.sync().unwrap();
        nothing_is_aside(&sample, disk).unwrap();
    }
}

/// Bug: opening failed when the program whose file it was about to remove did that itself.
#[test]
fn temporary_file_that_vanishes_does_not_stop_an_opening() {
    let sample = closed();
    let name = Path::new(DIR).join(".esker-probe-4711-0");
    let dir = sample.disk.open_dir(Path::new(DIR)).unwrap();
    drop(dir.open(".esker-probe-4711-0", OpenMode::create()).unwrap());
    let disk = sample.disk.clone();
    let vanishes = move |call: &Call<'_>| {
        if call.op == Op::Unlink && call.path == name {
            disk.remove(&name).unwrap();
        }
        Ok(())
    };
    let hooked = HookedDisk::new(Arc::new(sample.disk.process()), vanishes);
    let log = Log::builder(DIR).disk(Arc::new(hooked)).engine(Engine::manual()).open().unwrap();
    assert!(log.durable().0 > 0);
}
