//! The process dies when a segment was begun and nothing is in it yet, with the records before it
//! in the page cache alone; then power fails at every operation of the recovery.
//!
//! Guards: a recovery that looks for what it must copy in the newest segment only, and claims in a
//! new header what no disk holds.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_disk::sim::{CutPoint, Persist, SimDisk};
use esker_log::{Direct, Engine, Error, Log, Options, Policy};

use crate::corruption_kit::DIR;
use crate::corruption_kit::cases::Cases;
use crate::corruption_kit::sample::{options, payload};

fn handing_over(disk: &SimDisk, engine: &Engine) -> Options {
    let mut options = options(&disk.process(), engine);
    (options.direct, options.dsync) = (Direct::Off, false);
    options.policy = Policy::OsBuffered;
    options.segment_records = Some(2);
    options
}

/// Hands records over, and dies at an operation; `None` when it does not come so far.
fn killed_at(operation: u64) -> Option<SimDisk> {
    let disk = SimDisk::new(operation);
    disk.kill_at(CutPoint::Before(operation));
    let engine = Engine::manual();
    if let Ok(log) = Log::builder(DIR).options(handing_over(&disk, &engine)).open() {
        for n in 0..7 {
            drop(log.append(payload("handed over", n, 300)));
            engine.run();
        }
        drop(log);
    }
    engine.stop();
    let died = !disk.is_on();
    disk.power_on();
    died.then_some(disk)
}

fn recover(disk: &SimDisk) -> Result<(), Error> {
    let engine = Engine::manual();
    let opened = Log::builder(DIR).options(handing_over(disk, &engine)).open().map(drop);
    engine.stop();
    opened.map_err(Into::into)
}

#[test]
fn power_cut_in_recovery_leaves_no_durable_bound_above_the_records() {
    let mut cases = Cases::default();
    for disk in (0..).map_while(killed_at) {
        for operation in disk.operations().. {
            let disk = disk.fork(operation);
            disk.cut_power_at(CutPoint::Before(operation), Persist::Nothing);
            let done = recover(&disk).is_ok();
            disk.cancel_cut();
            disk.power_on();
            cases.run(format!("at operation {operation} of the recovery"), || {
                recover(&disk).map_err(|error| format!("{error:?}"))
            });
            if done {
                break;
            }
        }
    }
    cases.finish(200);
}
