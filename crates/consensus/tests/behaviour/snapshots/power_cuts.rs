//! Power cuts at every call of the disk while snapshots are made, entries truncated under them, and
//! old ones removed.
#![allow(clippy::unwrap_used, clippy::panic)]

use esker_consensus::{ConsensusLog, Error, Mode, Slot};
use esker_disk::sim::{CutPoint, Persist, SimDisk};

use crate::fixture::{DIR, Setting, driven, open_on};
use crate::snapshots::{Machine, commit_on, create};

/// Five rounds of commit, snapshot, truncate, keep. Stores how many slots are durably committed.
fn program(log: &ConsensusLog, first: u64, durable: &mut u64) -> Result<(), Error> {
    for round in 0..5 {
        let start = first + round * 8;
        commit_on(log, start..start + 8)?;
        *durable = start + 8;
        create(log, start + 5)?;
        if round > 0 {
            log.snapshots().truncate_through(Slot(start - 3))?;
        }
        log.snapshots().keep(2)?;
        log.maintenance().reclaim()?;
    }
    Ok(())
}

/// Checks the log after a crash: every slot that was durable is applied once, and so is what else
/// was found.
fn check(setting: &Setting, durable: u64, cut: u64) -> u64 {
    let (machine, restored) = Machine::restore(&setting.log).unwrap();
    assert!(restored.next.0 >= durable, "cut {cut}: {restored:?}, {durable} were durable");
    assert_eq!(machine, Machine::after(restored.next.0), "cut {cut}");
    assert_eq!(restored.skipped.len(), 0, "cut {cut}: {restored:?}");
    restored.next.0
}

/// Opens the log, which a cut may prevent, and runs a program.
fn life(disk: &SimDisk, run: impl FnOnce(&ConsensusLog) -> Result<(), Error>) -> Result<(), Error> {
    let (options, engine) = driven(disk, Mode::Durable);
    let opened = ConsensusLog::builder(DIR).options(options).open();
    let outcome = opened.map_err(Error::from).and_then(|log| run(&log));
    engine.stop();
    outcome
}

fn opened(disk: &SimDisk, mode: Mode) -> Setting {
    open_on(disk, mode, |_| {})
}

#[test]
fn a_cut_at_any_call_keeps_a_snapshot_or_the_entries() {
    let all = [Persist::Random, Persist::Nothing, Persist::Torn, Persist::Everything];
    let base = SimDisk::new(1);
    opened(&base, Mode::Durable).log.close().unwrap();
    let mut calls = 0;
    for cut in 0.. {
        let disk = base.fork(cut);
        let (mut durable, how) = (0, all[cut as usize % all.len()]);
        disk.cut_power_at(CutPoint::During(disk.operations() + cut / 4), how);
        let whole = life(&disk, |log| program(log, 0, &mut durable)).is_ok();
        if whole && disk.is_on() {
            calls = cut / 4;
            break;
        }
        disk.cancel_cut();
        disk.power_on();
        // The second cut comes in recovery, or in what follows.
        disk.cut_power_at(
            CutPoint::During(disk.operations() + cut % 23),
            all[(cut / 4) as usize % 4],
        );
        drop(life(&disk, |log| {
            let (machine, restored) = Machine::restore(log)?;
            assert_eq!(machine, Machine::after(restored.next.0), "cut {cut}");
            durable = durable.max(restored.next.0);
            program(log, restored.next.0, &mut durable)
        }));
        disk.cancel_cut();
        if !disk.is_on() {
            disk.power_on();
        }
        let setting = opened(&disk, Mode::Durable);
        let next = check(&setting, durable, cut);
        let mut again = next;
        program(&setting.log, next, &mut again).unwrap();
        assert_eq!(check(&setting, again, cut), next + 40);
    }
    assert!(calls > 100, "{calls}");
}
