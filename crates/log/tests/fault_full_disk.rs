//! The disk fills up, at every size it may have: the failure is `StorageFull`, nothing durable is
//! lost, readers go on, and with room again the log goes on.
//!
//! Guards: a full disk that is met halfway through a commit, a rotation or a recovery and leaves
//! what cannot be opened; and space that is needed to get out of it.
#![allow(clippy::panic)] // What tests share fails loudly.

mod harness;

use std::io::ErrorKind;

use esker_disk::Op;
use esker_disk::sim::Effect;
use esker_log::Error;
use harness::case::case;
use harness::config::{Config, WAYS, policies, segments};
use harness::faults::{EXITS, Exit, Ran, check_latched, exit_and_recover};
use harness::workload::{Step, Then};
use harness::world::{Life, Stop, World};

const TEST: &str = "fault_full_disk::a_full_disk_loses_nothing";

/// Appends until the disk is full.
fn fill(world: &mut World) -> Result<Ran, String> {
    let mut life = match world.open() {
        Ok(life) => life,
        Err(Stop::Failed(error)) => return Ok(Ran::NotOpened(error)),
        Err(stop) => return Err(format!("{stop:?}")),
    };
    for n in 0..400 {
        let step = Step::Append { len: 100 + n * 37 % 9000, then: Then::Wait };
        match world.go(&mut life, std::slice::from_ref(&step)) {
            Ok(()) => {}
            Err(Stop::Failed(error)) => return Ok(Ran::Failed { life, step, error }),
            Err(stop) => return Err(format!("{stop:?}")),
        }
    }
    Ok(Ran::Through(life))
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Io(cause) | Error::Poisoned(cause) if cause.kind() == ErrorKind::StorageFull)
}

fn full_at(config: Config, capacity: u64, exit: Exit) -> Result<(), String> {
    let mut world = World::new(config, capacity);
    world.disk.set_capacity(Some(capacity));
    let life: Option<Life> = match fill(&mut world)? {
        Ran::Failed { life, error, .. } if is_full(&error) => {
            let latched = check_latched(&world, &life, Op::Write, &Effect::NoSpace);
            let sized = || check_latched(&world, &life, Op::Size, &Effect::NoSpace);
            let named = || check_latched(&world, &life, Op::Open, &Effect::NoSpace);
            latched.or_else(|_| sized()).or_else(|_| named())?;
            Some(life)
        }
        Ran::NotOpened(error) if is_full(&error) => None,
        Ran::Through(_) if config.retention.segments.is_some() => return Ok(()),
        other => return Err(format!("{other:?}")),
    };
    world.disk.set_capacity(None);
    exit_and_recover(&mut world, life, exit)
}

#[test]
fn a_full_disk_loses_nothing() {
    for (n, policy) in (0..).zip(policies()) {
        for way in WAYS {
            for retention in [None, Some(segments(2))] {
                let mut config = Config::new(policy).way(way);
                if let Some(retention) = retention {
                    config = config.retention(retention);
                }
                // Around the sizes at which the manifest, the first and the second segment fit.
                for pages in (1..24).chain(30..60).step_by(1 + n % 3) {
                    let exit = EXITS[(pages % 4) as usize];
                    let capacity = pages * 4096;
                    let name = format!("{config}, {pages} pages, {exit:?}");
                    let Some(_case) = case(TEST, &name) else { continue };
                    if let Err(error) = full_at(config, capacity, exit) {
                        panic!("{name}: {error}");
                    }
                }
            }
        }
    }
}

/// Opening a log on a disk that is still full: recovery may refuse for want of space, and must not
/// lose anything by it.
#[test]
fn a_disk_that_stays_full_keeps_what_was_durable() {
    for policy in policies() {
        for pages in [18, 20, 33, 40, 50] {
            let config = Config::new(policy);
            let mut world = World::new(config, pages);
            world.disk.set_capacity(Some(pages * 4096));
            let filled = fill(&mut world);
            assert!(matches!(filled, Ok(Ran::Failed { .. } | Ran::NotOpened(_))), "{filled:?}");
            world.disk.kill();
            drop(filled);
            for _ in 0..3 {
                world.disk.power_on();
                match world.open() {
                    Ok(life) => drop(life),
                    Err(Stop::Failed(error)) if is_full(&error) => {}
                    Err(stop) => panic!("{config}, {pages} pages: {stop:?}"),
                }
                world.model.lose_cache();
                world.disk.kill();
            }
            world.disk.power_on();
            world.disk.set_capacity(None);
            assert_eq!(world.live_and_close(&[]), Ok(()), "{config}, {pages} pages");
        }
    }
}
