//! After a power cut, one flipped bit below the durable lower bound is reported, and above it costs
//! no more acknowledged commit units than the guarantees say for the policy.
//!
//! Guards: units that nothing on the disk says were durable, so that corruption among them passes
//! for a torn tail, and every unit after it goes silently; under `OsBuffered`, where one sync makes
//! many units durable, in a log that was closed and opened again, and in one that was recovered.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::num::NonZeroU64;
use std::time::Duration;

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::{Engine, Log, LogError, OpenCheck, OpenError, Options, Policy, verify};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::map::{Map, segment_path};
use crate::corruption_kit::sample::{options, payload};

const RECORDS: u64 = 12;

/// The sessions of the log before the power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// One session, not closed.
    Fresh,
    /// Closed, opened again, and nothing appended since.
    Reopened,
    /// Closed, opened again, and more appended.
    GoneOn,
    /// Killed, recovered, and more appended.
    Recovered,
}

const LIVES: [Life; 4] = [Life::Fresh, Life::Reopened, Life::GoneOn, Life::Recovered];

fn policies() -> [Policy; 4] {
    let most = NonZeroU64::new(1000).unwrap();
    let never = Duration::from_secs(3600);
    [Policy::Always, Policy::Batch(most), Policy::Periodic(never), Policy::OsBuffered]
}

/// Acknowledged units that one flipped bit may cut silently, as docs/src/guarantees.md says.
fn bound(options: &Options) -> usize {
    match options.policy {
        Policy::OsBuffered => 0,
        _ if options.dsync => options.commits_in_flight as usize,
        _ => 1,
    }
}

/// Units of one record each, all durable when this returns. Under `OsBuffered` one sync, at the
/// end, makes all of them durable.
fn fill(log: &Log, engine: &Engine, from: u64) {
    let buffered = log.stats().syncs;
    for seq in from..from + RECORDS {
        let ticket = log.append(payload("bound", seq, 900 + (seq as usize * 701) % 5000)).unwrap();
        drop(ticket);
        engine.run();
    }
    log.barrier().unwrap().blocking_wait().unwrap();
    engine.run();
    assert!(log.stats().syncs > buffered);
}

/// A log after the power cut. Everything in it was acknowledged.
fn cut(disk: &SimDisk, life: Life, with: impl Fn(&SimDisk, &Engine) -> Options) -> u64 {
    let engine = Engine::manual();
    let mut log = Log::builder(DIR).options(with(&disk.process(), &engine)).open().unwrap();
    fill(&log, &engine, 1);
    let mut last = RECORDS;
    if life != Life::Fresh {
        if life == Life::Recovered {
            disk.kill();
            drop(log);
            disk.power_on();
        } else {
            log.close().unwrap();
        }
        log = Log::builder(DIR).options(with(&disk.process(), &engine)).open().unwrap();
        assert_eq!(log.durable().0, last);
        if life != Life::Reopened {
            fill(&log, &engine, last + 1);
            last += RECORDS;
        }
    }
    assert_eq!(log.durable().0, last);
    disk.power_cut(Persist::Nothing);
    drop(log);
    engine.stop();
    disk.power_on();
    last
}

#[test]
fn flipped_bit_costs_no_more_units_than_guaranteed() {
    let mut cases = Cases::default();
    for policy in policies() {
        for dsync in [true, false] {
            for (seed, life) in (1..).zip(LIVES) {
                let disk = SimDisk::new(seed);
                let with = |disk: &SimDisk, engine: &Engine| {
                    let mut options = options(disk, engine);
                    options.policy = policy;
                    options.dsync = dsync;
                    options.segment_records = Some(7);
                    options.check = OpenCheck::Full;
                    options
                };
                let last = cut(&disk, life, with);
                let map = Map::read(&disk);
                let units = map.segments.iter().flat_map(|segment| {
                    segment.units.iter().map(|unit| (segment_path(segment.number), unit))
                });
                let units: Vec<_> = units.collect();
                for (n, (file, unit)) in units.iter().enumerate() {
                    for byte in [9, 40, 80, unit.used - 1] {
                        let at = (unit.at.start + byte) as u64;
                        let name = format!("{policy:?}, dsync {dsync}, {life:?}, {n}, {byte}");
                        cases.run(name, || {
                            let disk = disk.fork(at);
                            disk.flip_bit(file, at * 8 + 2).map_err(|e| e.to_string())?;
                            let engine = Engine::manual();
                            let options = with(&disk, &engine);
                            let report = verify(DIR, &options).map_err(|e| format!("{e:?}"))?;
                            let verifies = report.corruption.is_empty();
                            let claim = map.durable_bound_without(file, &(at..at + 1));
                            match Log::builder(DIR).options(options.clone()).open() {
                                Err(OpenError::Corrupted(_)) if verifies => {
                                    Err("verify finds nothing".into())
                                }
                                Err(OpenError::Corrupted(_)) => Ok(()),
                                Err(other) => Err(format!("{other:?}")),
                                Ok(_) if !verifies => {
                                    Err(format!("opens, and verify says {:?}", report.corruption))
                                }
                                Ok(log) if log.durable().0 < claim => Err(format!(
                                    "up to {claim} was durable, and {} is",
                                    log.durable()
                                )),
                                Ok(log) => {
                                    let kept = log.durable().0;
                                    let lost =
                                        units.iter().filter(|(_, u)| u.last_seq > kept).count();
                                    if lost > bound(&options) {
                                        return Err(format!("{lost} units lost silently"));
                                    }
                                    Ok(())
                                }
                            }
                        });
                    }
                }
                assert_eq!(units.last().unwrap().1.last_seq, last);
            }
        }
    }
    cases.finish(1000);
}

/// The page is stored in two slots in turn: a power cut that tears a store leaves the bound of the
/// sync before it.
#[test]
fn torn_watermark_page_keeps_the_previous_bound() {
    let mut cases = Cases::default();
    let with = |disk: &SimDisk, engine: &Engine| {
        let mut options = options(disk, engine);
        options.policy = Policy::OsBuffered;
        options.check = OpenCheck::Full;
        options
    };
    for seed in 0..6 {
        let lived = |cut: Option<CutPoint>| {
            let disk = SimDisk::new(seed);
            let engine = Engine::manual();
            let log = Log::builder(DIR).options(with(&disk.process(), &engine)).open().unwrap();
            fill(&log, &engine, 1);
            drop(log.append(b"one more").unwrap());
            engine.run();
            let from = disk.operations();
            if let Some(cut) = cut {
                disk.cut_power_at(cut, Persist::Torn);
            }
            let flushed = log.barrier().and_then(|ticket| ticket.blocking_wait());
            assert_eq!(flushed.is_ok(), cut.is_none());
            let to = disk.operations();
            if cut.is_none() {
                disk.power_cut(Persist::Nothing);
            }
            drop(log);
            engine.stop();
            disk.power_on();
            (disk, from..to)
        };
        let (_, operations) = lived(None);
        assert!(operations.end - operations.start >= 3, "a sync, a store and a sync");
        for operation in operations {
            let (disk, _) = lived(Some(CutPoint::During(operation)));
            let map = Map::read(&disk);
            let segment = &map.segments[0];
            for unit in segment.units.iter().filter(|unit| unit.last_seq <= RECORDS) {
                cases.run(format!("{seed}, {operation}, {}", unit.last_seq), || {
                    let disk = disk.fork(unit.last_seq);
                    let at = unit.at.start as u64 + 80;
                    let flipped = disk.flip_bit(&segment_path(segment.number), at * 8);
                    flipped.map_err(|error| error.to_string())?;
                    let engine = Engine::manual();
                    match Log::builder(DIR).options(with(&disk, &engine)).open() {
                        // The torn sector may be unreadable, which is reported first.
                        Err(OpenError::Corrupted(_) | OpenError::Log(LogError::Io(_))) => Ok(()),
                        Ok(log) => Err(format!("it opens, up to {}", log.durable())),
                        Err(other) => Err(format!("{other:?}")),
                    }
                });
            }
        }
    }
    cases.finish(150);
}
