//! The same seed and the same calls give the same bytes, names and errors; another seed does not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use esker_disk::sim::{Effect, Fault, Persist, Replay, Sector, SimDisk, SimOptions, seed_from_env};
use esker_disk::{BLOCK_BYTES, Op, OpenMode, Result};

use crate::by_path::ByPath;

/// Files, faults and four power cuts; gives all that was answered, and the state at the end.
fn run(seed: u64) -> (Vec<String>, u64, SimDisk) {
    let disk = SimDisk::with(SimOptions::new(seed).sector(Sector::B512));
    let mut answers = Vec::new();
    disk.inject(Fault::on(Op::Write, Effect::Short(None)).percent(20));
    disk.inject(Fault::on(Op::Write, Effect::Io).percent(5));
    disk.inject(Fault::on(Op::Write, Effect::Misdirect).percent(5));
    disk.inject(Fault::on(Op::Sync, Effect::Io).percent(20));
    disk.inject(Fault::on(Op::Read, Effect::BitRot(None)).percent(20));
    for round in 0..4_u8 {
        for step in 0..30_u8 {
            let path = PathBuf::from(format!("/{}", step % 5));
            let answer = one(&disk, &path, round.wrapping_mul(31).wrapping_add(step));
            answers.push(format!("{answer:?}"));
        }
        disk.power_cut(Persist::Random);
        disk.power_on();
    }
    let fingerprint = disk.fingerprint();
    (answers, fingerprint, disk)
}

fn one(disk: &SimDisk, path: &Path, step: u8) -> Result<usize> {
    let file = disk.open(path, OpenMode::create())?;
    file.write_at(&[step; 2 * BLOCK_BYTES], u64::from(step) * 700)?;
    match step % 4 {
        0 => file.sync_data()?,
        1 => disk.sync_dir(Path::new("/"))?,
        2 => disk.rename(path, Path::new("/moved"))?,
        _ => file.set_len(u64::from(step) * 500)?,
    }
    file.read_at(&mut [0; BLOCK_BYTES], 0)
}

#[test]
fn same_seed_gives_the_same_run() {
    let first = seed_from_env("ESKER_SEED", 1);
    let mut all = BTreeSet::new();
    for seed in first..first + 30 {
        let _replay = Replay::new("same_seed_gives_the_same_run", seed);
        let (answers, state, disk) = run(seed);
        let (again, state_again, other) = run(seed);
        assert_eq!(answers, again);
        assert_eq!((state, disk.stats()), (state_again, other.stats()));
        all.insert(state);
    }
    assert_eq!(all.len(), 30, "another seed is another run");
}

#[test]
fn failure_prints_the_command_that_repeats_it() {
    let replay = Replay::new("some_test", 77);
    assert_eq!(replay.command(), "ESKER_SEED=77 cargo test -p esker-disk some_test");
    assert_eq!(seed_from_env("ESKER_SEED_THAT_IS_NOT_SET", 5), 5);
}
