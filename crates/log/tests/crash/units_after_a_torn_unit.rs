//! A unit in the middle does not check, and whole ones follows it.
//!
//! Guards: a scan that runs on after a torn unit, and with it takes up records that were never
//! durable, reports no cut, or ignores a later unit that claims the torn one.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::sim::{Persist, SimDisk};
use esker_log::{Direct, Engine, Log, OpenCheck, OpenError, Options, Policy};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::map::{Map, segment_path};
use crate::corruption_kit::reading::Item;
use crate::corruption_kit::repairs::check_log;
use crate::corruption_kit::sample::{Building, options, payload};

const LEN: usize = 5000;
const PERSISTS: [Persist; 4] =
    [Persist::Nothing, Persist::Everything, Persist::Random, Persist::Torn];

fn handing_over(disk: &SimDisk, engine: &Engine, validate: OpenCheck) -> Options {
    let mut options = options(&disk.process(), engine);
    (options.direct, options.dsync) = (Direct::Off, false);
    options.policy = Policy::OsBuffered;
    options.check = validate;
    options
}

/// Hands over a record in a unit of its own.
fn hand_over(log: &Log, engine: &Engine, life: &str, seq: u64) -> Item {
    let payload = payload(life, seq, LEN);
    drop(log.append(&payload).unwrap());
    engine.run();
    Item::Record { seq, prev: seq - 1, payload }
}

fn cut_power(disk: &SimDisk, log: Log, engine: &Engine, persist: Persist) {
    disk.power_cut(persist);
    drop(log);
    engine.stop();
    disk.power_on();
}

/// A log of three units that were never synced, of which a power cut left the first and the last
/// whole. Returns the first record, and the offset of the second.
fn torn_in_the_middle() -> (SimDisk, Item, u64) {
    let (disk, engine) = (SimDisk::new(3), Engine::manual());
    let log =
        Log::builder(DIR).options(handing_over(&disk, &engine, OpenCheck::Quick)).open().unwrap();
    let items: Vec<_> = (1..=3).map(|seq| hand_over(&log, &engine, "first", seq)).collect();
    cut_power(&disk, log, &engine, Persist::Everything);
    let map = Map::read(&disk);
    let [_, torn, _] = &map.newest().units[..] else { panic!("not three units") };
    disk.flip_bit(&segment_path(map.newest().number), (torn.at.start as u64 + 4500) * 8).unwrap();
    (disk, items[0].clone(), torn.at.start as u64)
}

/// The next life has one record, and a record in the place of the torn one; then power fails.
fn two_lives(disk: &SimDisk, first: &Item, torn: u64, persist: Persist, validate: OpenCheck) {
    let engine = Engine::manual();
    let log = Log::builder(DIR).options(handing_over(disk, &engine, validate)).open().unwrap();
    let cut = log.storage().recovery().truncated_tail.clone().unwrap();
    assert_eq!((cut.offset, log.storage().recovery().last.0), (torn, 1), "{cut:?}");
    check_log(&log, std::slice::from_ref(first)).unwrap();
    let second = hand_over(&log, &engine, "second", 2);
    cut_power(disk, log, &engine, persist);

    let engine = Engine::manual();
    let log = Log::builder(DIR).options(handing_over(disk, &engine, validate)).open().unwrap();
    let last = log.storage().recovery().last.0;
    assert!((1..=2).contains(&last), "the log ends with {last}");
    check_log(&log, &[first.clone(), second][..last as usize]).unwrap();
    log.close().unwrap();
    engine.stop();
}

#[test]
fn units_after_a_torn_unit_never_return() {
    let (disk, first, torn) = torn_in_the_middle();
    let mut cases = Cases::default();
    for validate in [OpenCheck::Quick, OpenCheck::Full] {
        for persist in PERSISTS {
            for seed in 0..4 {
                let disk = disk.fork(seed);
                cases.run(format!("{validate:?} {persist:?} {seed}"), || {
                    two_lives(&disk, &first, torn, persist, validate);
                    Ok(())
                });
            }
        }
    }
    cases.finish(32);
}

/// The watermark page is lost with the power. Only the unit after it says that the torn unit was
/// durable.
#[test]
fn later_durable_bound_makes_a_torn_unit_corruption() {
    let mut log = Building::new("claimed");
    log.open(100).one(LEN).one(LEN).one(LEN).kill();
    let sample = log.done(false);
    let disk = sample.disk;
    disk.power_cut(Persist::Nothing);
    disk.power_on();
    let torn = &sample.map.newest().units[1];
    let file = segment_path(sample.map.newest().number);
    disk.flip_bit(&file, (torn.at.start as u64 + 4500) * 8).unwrap();
    for validate in [OpenCheck::Quick, OpenCheck::Full] {
        let (disk, engine) = (disk.fork(1), Engine::manual());
        let mut options = options(&disk, &engine);
        options.check = validate;
        match Log::builder(DIR).options(options).open() {
            Err(OpenError::Corrupted(damage)) => {
                let reported = (damage.file, damage.offset, damage.after.0);
                assert_eq!(reported, (file.clone(), torn.at.start as u64, 1));
            }
            other => panic!("a durable record is gone, and opening says {other:?}"),
        }
    }
}
