//! A repair of what is not corrupted.
//!
//! Guards: a repair that costs a valid log its clean end, and with it the promise that any missing
//! byte would be noticed; a torn tail quarantined as corruption, when opening would have cut it, or
//! the holes that a power cut left among commits that were never synced.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::sim::{Persist, SimDisk};
use esker_log::{Engine, Log, OnCorruption, Policy, repair, verify};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::map::in_dir;
use crate::corruption_kit::repairs::{check_log, continues, open};
use crate::corruption_kit::sample::{self, options, payload};

#[test]
fn repair_of_a_valid_log_changes_and_reports_nothing() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed(), sample::lonely(), sample::quarantined()] {
        cases.run(sample.name, || {
            let disk = sample.disk.fork(1);
            let before = disk.fingerprint();
            let engine = Engine::manual();
            let repaired = repair(DIR, options(&disk, &engine)).map_err(|e| format!("{e:?}"))?;
            if !repaired.quarantined.is_empty() || repaired.manifest_rebuilt {
                return Err(format!("{repaired:?}"));
            }
            if disk.fingerprint() != before {
                return Err("the files were changed".into());
            }
            Ok(())
        });
    }
    cases.finish(4);
}

#[test]
fn torn_tail_is_not_corruption() {
    let sample = sample::torn();
    let disk = sample.disk.fork(1);
    let engine = Engine::manual();
    let repaired = repair(DIR, options(&disk, &engine)).unwrap();
    assert!(repaired.quarantined.is_empty(), "{repaired:?}");
    check_log(&open(&disk, OnCorruption::Fail).unwrap(), &sample.items).unwrap();
    continues(&sample, disk, sample.items.clone()).unwrap();
}

#[test]
fn open_of_a_valid_log_quarantines_and_truncates_nothing() {
    let mut cases = Cases::default();
    for sample in sample::all() {
        for on_corruption in [OnCorruption::Quarantine, OnCorruption::Truncate] {
            cases.run(format!("{}, {on_corruption:?}", sample.name), || {
                let disk = sample.disk.fork(1);
                check_log(&open(&disk, on_corruption)?, &sample.items)?;
                if disk.files(&in_dir("quarantine")).is_ok_and(|kept| !kept.is_empty()) {
                    return Err("something was quarantined".into());
                }
                continues(&sample, disk, sample.items.clone())
            });
        }
    }
    cases.finish(8);
}

/// Commits that were handed to the system and not synced, after some that were, and the power cut:
/// any of them is on the disk.
fn handed_over_and_cut(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    let engine = Engine::manual();
    let mut options = options(&disk.process(), &engine);
    options.policy = Policy::OsBuffered;
    options.segment_records = Some(6);
    let log = Log::builder(DIR).options(options).open().unwrap();
    for n in 0..12 {
        let ticket = log.append(payload("handed over", n, 3000)).unwrap();
        if n < 3 {
            ticket.blocking_wait().unwrap();
        }
        engine.run();
    }
    disk.power_cut(Persist::Random);
    drop(log);
    engine.stop();
    disk.power_on();
    disk
}

#[test]
fn holes_left_by_a_power_cut_are_not_corruption() {
    let mut cases = Cases::default();
    let mut with_holes = 0;
    for seed in 0..60 {
        let disk = handed_over_and_cut(seed);
        let opened = disk.fork(1);
        let recovered = open(&opened, OnCorruption::Fail).unwrap();
        let (last, cut) =
            (recovered.durable(), recovered.storage().recovery().truncated_tail.clone());
        with_holes += usize::from(cut.is_some_and(|cut| cut.bytes > 4096));
        cases.run(format!("seed {seed}, up to {last}"), || {
            let engine = Engine::manual();
            let report = verify(DIR, options(&disk, &engine)).map_err(|e| format!("{e:?}"))?;
            if let Some(damage) = report.corruption.first() {
                return Err(format!("verify finds {damage}"));
            }
            if report.last != last {
                return Err(format!("verify ends at {}", report.last));
            }
            let repaired = repair(DIR, options(&disk, &engine)).map_err(|e| format!("{e:?}"))?;
            if !repaired.quarantined.is_empty() {
                return Err(format!("{repaired:?}"));
            }
            let again = open(&disk, OnCorruption::Fail)?.durable();
            if again == last { Ok(()) } else { Err(format!("after the repair it ends at {again}")) }
        });
    }
    assert!(with_holes > 10, "only {with_holes} of the cuts left a hole");
    cases.finish(60);
}
