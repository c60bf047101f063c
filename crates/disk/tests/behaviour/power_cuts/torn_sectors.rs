//! At most one sector of a power cut is torn: mixed, garbled, or unreadable until it is written
//! again.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use esker_disk::sim::{Persist, Replay, Sector, SimDisk, SimOptions, seed_from_env};
use esker_disk::{AlignedBuf, BLOCK_BYTES, Op, OpenMode, read_full_at, write_all_at};

use crate::by_path::ByPath;

const PATH: &str = "/a";

fn cut_in_the_air(seed: u64, sector: Sector) -> SimDisk {
    let disk = SimDisk::with(SimOptions::new(seed).sector(sector));
    let file = disk.open(Path::new(PATH), OpenMode::create()).unwrap();
    write_all_at(&*file, &[1; 4 * BLOCK_BYTES], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    write_all_at(&*file, &[2; 2 * BLOCK_BYTES], BLOCK_BYTES as u64).unwrap();
    disk.power_cut(Persist::Torn);
    disk.power_on();
    disk
}

#[test]
fn each_kind_of_tear_occurs_and_only_where_bytes_were_in_the_air() {
    let first = seed_from_env("ESKER_SEED", 1);
    for sector in [Sector::B512, Sector::B4096] {
        let (mut mixed, mut garbled, mut unreadable, mut whole) = (0, 0, 0, 0);
        for seed in first..first + 300 {
            let _replay = Replay::new("each_kind_of_tear_occurs", seed);
            let disk = cut_in_the_air(seed, sector);
            let found = disk.contents(Path::new(PATH)).unwrap();
            assert!(
                found[..BLOCK_BYTES] == [1; BLOCK_BYTES]
                    && found[3 * BLOCK_BYTES..] == [1; BLOCK_BYTES]
            );
            let file = disk.open(Path::new(PATH), OpenMode::read()).unwrap();
            let mut buf = vec![0; 4 * BLOCK_BYTES];
            if let Err(error) = read_full_at(&*file, &mut buf, 0) {
                assert_eq!((error.op(), error.os_code()), (Op::Read, Some(5)));
                unreadable += 1;
                continue;
            }
            let odd = |bytes: &&[u8]| bytes.iter().any(|byte| *byte != bytes[0]);
            let torn: Vec<&[u8]> = found.chunks(sector.bytes()).filter(odd).collect();
            match torn[..] {
                [] => whole += 1,
                [one] if one.iter().all(|byte| (1..=2).contains(byte)) => mixed += 1,
                [_] => garbled += 1,
                _ => panic!("more than one torn sector"),
            }
        }
        assert!(
            mixed > 30 && garbled > 30 && unreadable > 30,
            "{sector:?}: {mixed} mixed, {garbled} garbled, {unreadable} unreadable, {whole} whole"
        );
    }
}

#[test]
fn a_sector_that_cannot_be_read_fails_alone_until_it_is_written_whole() {
    for direct in [false, true] {
        let disk = SimDisk::with(SimOptions::new(1).sector(Sector::B512));
        let how = OpenMode::create().direct(direct);
        let file = disk.open(Path::new(PATH), how).unwrap();
        let mut buf = AlignedBuf::new(3 * BLOCK_BYTES);
        buf.fill(1);
        write_all_at(&*file, &buf, 0).unwrap();
        file.sync_data().unwrap();
        disk.make_unreadable(Path::new(PATH), BLOCK_BYTES as u64 + 700).unwrap();

        assert_eq!(file.read_at(&mut buf, 0).unwrap(), BLOCK_BYTES, "short, up to the bad block");
        let error = file.read_at(&mut buf, BLOCK_BYTES as u64).unwrap_err();
        assert_eq!((error.os_code(), error.offset()), (Some(5), Some(BLOCK_BYTES as u64)));
        assert_eq!(
            file.read_at(&mut buf[..BLOCK_BYTES], 2 * BLOCK_BYTES as u64).unwrap(),
            BLOCK_BYTES
        );
        if !direct {
            let error = file.write_at(b"x", BLOCK_BYTES as u64 + 10).unwrap_err();
            assert_eq!(error.os_code(), Some(5), "the rest of the block can't be fetched");
        }
        buf.fill(2);
        write_all_at(&*file, &buf[..BLOCK_BYTES], BLOCK_BYTES as u64).unwrap();
        assert_eq!(read_full_at(&*file, &mut buf, 0).unwrap(), 3 * BLOCK_BYTES);

        let lost = disk.fork(2);
        lost.power_cut(Persist::Nothing);
        disk.power_cut(Persist::Everything);
        for (disk, readable) in [(lost, false), (disk, true)] {
            disk.power_on();
            let Ok(file) = disk.open(Path::new(PATH), OpenMode::read()) else {
                assert!(!readable, "its name was never synced");
                continue;
            };
            assert_eq!(read_full_at(&*file, &mut buf, 0).is_ok(), readable);
        }
    }
}

#[test]
fn a_lost_overwrite_leaves_the_sector_unreadable() {
    let disk = cut_in_the_air(1, Sector::B4096);
    disk.make_unreadable(Path::new(PATH), 0).unwrap();
    let file = disk.open(Path::new(PATH), OpenMode::write()).unwrap();
    write_all_at(&*file, &[3; BLOCK_BYTES], 0).unwrap();
    assert!(file.read_at(&mut [0; 10], 0).is_ok(), "it is in the cache");
    disk.power_cut(Persist::Nothing);
    disk.power_on();
    let file = disk.open(Path::new(PATH), OpenMode::write()).unwrap();
    assert_eq!(file.read_at(&mut [0; 10], 0).unwrap_err().os_code(), Some(5));
}

#[test]
fn a_sector_that_the_cut_kept_old_stays_unreadable() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let disk = SimDisk::with(SimOptions::new(seed).sector(Sector::B512).torn_percent(0));
        let file = disk.open(Path::new(PATH), OpenMode::create()).unwrap();
        write_all_at(&*file, &[1; BLOCK_BYTES], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk.make_unreadable(Path::new(PATH), 0).unwrap();
        write_all_at(&*file, &[2; BLOCK_BYTES], 0).unwrap();
        disk.power_cut(Persist::Random);
        disk.power_on();
        let replaced = disk.contents(Path::new(PATH)).unwrap()[0] == 2;
        let file = disk.open(Path::new(PATH), OpenMode::read()).unwrap();
        assert_eq!(file.read_at(&mut [0], 0).is_ok(), replaced, "seed {seed}");
        outcomes.insert(replaced);
    }
    assert_eq!(outcomes.len(), 2);
}

#[test]
fn one_sector_of_the_whole_disk_is_torn() {
    let mut torn_files = [0; 3];
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        for name in 0..3 {
            let path = format!("/{name}");
            let file = disk.open(Path::new(&path), OpenMode::create()).unwrap();
            file.set_len(2 * BLOCK_BYTES as u64).unwrap();
            file.sync_data().unwrap();
            write_all_at(&*file, &[2; 2 * BLOCK_BYTES], 0).unwrap();
        }
        disk.sync_dir(Path::new("/")).unwrap();
        disk.power_cut(Persist::Torn);
        let torn = |name: &usize| {
            let bytes = disk.contents(Path::new(&format!("/{name}"))).unwrap();
            bytes.chunks(BLOCK_BYTES).any(|block| block.iter().any(|byte| *byte != block[0]))
        };
        let torn: Vec<usize> = (0..3).filter(torn).collect();
        assert!(torn.len() <= 1, "seed {seed}: {torn:?}");
        torn.iter().for_each(|name| torn_files[*name] += 1);
    }
    assert!(torn_files.iter().all(|count| *count > 20), "each of them can be: {torn_files:?}");
}
