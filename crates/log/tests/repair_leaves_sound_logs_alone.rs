//! A repair of what is not damaged.
//!
//! Guards: a repair that costs a sound log its clean end, and with it the promise that any missing
//! byte would be noticed; a torn tail put aside as damage, when opening would have cut it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod damage_kit;

use damage_kit::DIR;
use damage_kit::cases::Cases;
use damage_kit::healing::{check_log, goes_on, open};
use damage_kit::map::in_dir;
use damage_kit::sample::{self, options};
use esker_disk::Disk;
use esker_log::{Engine, OnDamage, repair};

#[test]
fn nothing_is_changed_and_nothing_told() {
    let mut cases = Cases::default();
    for sample in [sample::closed(), sample::killed(), sample::lonely(), sample::quarantined()] {
        cases.run(sample.name, || {
            let disk = sample.disk.fork(1);
            drop(disk.lock(&in_dir("lock")));
            let before = disk.fingerprint();
            let engine = Engine::manual();
            let repaired = repair(DIR, &options(&disk, &engine)).map_err(|e| format!("{e:?}"))?;
            if !repaired.aside.is_empty() || repaired.manifest {
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
fn a_torn_tail_is_no_damage() {
    let sample = sample::torn();
    let disk = sample.disk.fork(1);
    let engine = Engine::manual();
    let repaired = repair(DIR, &options(&disk, &engine)).unwrap();
    assert!(repaired.aside.is_empty(), "{repaired:?}");
    check_log(&open(&disk, OnDamage::Fail).unwrap(), &sample.items).unwrap();
    goes_on(&sample, disk, sample.items.clone()).unwrap();
}

#[test]
fn opening_with_a_choice_about_damage_finds_none() {
    let mut cases = Cases::default();
    for sample in sample::all() {
        for on_damage in [OnDamage::Quarantine, OnDamage::Truncate] {
            cases.run(format!("{}, {on_damage:?}", sample.name), || {
                let disk = sample.disk.fork(1);
                check_log(&open(&disk, on_damage)?, &sample.items)?;
                if disk.files(&in_dir("quarantine")).is_ok_and(|kept| !kept.is_empty()) {
                    return Err("something was put aside".into());
                }
                goes_on(&sample, disk, sample.items.clone())
            });
        }
    }
    cases.finish(8);
}
