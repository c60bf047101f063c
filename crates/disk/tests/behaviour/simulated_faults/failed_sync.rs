//! After a failed sync the pages count as clean: the next sync succeeds and writes nothing. This is
//! why a log fails for good the failure and trusts nothing that may live in a cache alone.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use esker_disk::sim::{CacheAfterFailedSync, Effect, Fault, Persist, SimDisk, SimOptions};
use esker_disk::{AlignedBuf, BLOCK_BYTES, File, Op, OpenMode, read_full_at, write_all_at};

use crate::by_path::ByPath;

const PATH: &str = "/a";

fn first_byte(file: &dyn File) -> u8 {
    let mut buf = AlignedBuf::new(BLOCK_BYTES);
    read_full_at(file, &mut buf, 0).unwrap();
    assert!(buf.iter().all(|byte| *byte == buf[0]), "a sector of 4096 bytes is whole");
    buf[0]
}

/// A block of `1` that is durable, overwritten with `2`; the sync of that failed.
fn after_failed_sync(seed: u64, mode: CacheAfterFailedSync) -> (SimDisk, Arc<dyn File>) {
    let disk = SimDisk::with(SimOptions::new(seed).cache_after_failed_sync(mode));
    let file = disk.open(Path::new(PATH), OpenMode::create()).unwrap();
    write_all_at(&*file, &[1; BLOCK_BYTES], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    write_all_at(&*file, &[2; BLOCK_BYTES], 0).unwrap();
    disk.inject(Fault::on(Op::Sync, Effect::Io).nth(1));
    assert_eq!(file.sync_data().unwrap_err().os_code(), Some(5));
    (disk, file)
}

/// The results of ordinary reads, direct reads, and reads after a power cut, over many seeds.
fn seen(mode: CacheAfterFailedSync) -> BTreeSet<[u8; 3]> {
    let seen = |seed| {
        let (disk, file) = after_failed_sync(seed, mode);
        file.sync_data().unwrap();
        let direct = disk.open(Path::new(PATH), OpenMode::read().direct(true)).unwrap();
        let (cached, direct) = (first_byte(&*file), first_byte(&*direct));
        assert_eq!(first_byte(&*file), cached, "a direct read does not change what is cached");
        disk.power_cut(Persist::Everything);
        disk.power_on();
        let later = disk.open(Path::new(PATH), OpenMode::read()).unwrap();
        [cached, direct, first_byte(&*later)]
    };
    (0..100).map(seen).collect()
}

#[test]
fn the_new_content_stays_readable_and_is_gone_with_the_power() {
    let seen = seen(CacheAfterFailedSync::NewStaysReadable);
    assert_eq!(
        seen,
        BTreeSet::from([[2, 1, 1], [2, 2, 2]]),
        "lost, or by chance written after all"
    );
}

#[test]
fn the_old_content_comes_back_at_once() {
    let seen = seen(CacheAfterFailedSync::OldComesBack);
    assert_eq!(seen, BTreeSet::from([[1, 1, 1], [2, 2, 2]]));
}

#[test]
fn written_again_it_can_be_synced() {
    for mode in [CacheAfterFailedSync::NewStaysReadable, CacheAfterFailedSync::OldComesBack] {
        for direct in [false, true] {
            let (disk, _) = after_failed_sync(1, mode);
            let file = disk.open(Path::new(PATH), OpenMode::write().direct(direct)).unwrap();
            let mut block = AlignedBuf::new(BLOCK_BYTES);
            block.fill(3);
            write_all_at(&*file, &block, 0).unwrap();
            let plain = disk.open(Path::new(PATH), OpenMode::read()).unwrap();
            assert_eq!(first_byte(&*plain), 3);
            file.sync_data().unwrap();
            disk.power_cut(Persist::Nothing);
            assert_eq!(disk.contents(Path::new(PATH)).unwrap()[0], 3);
        }
    }
}

#[test]
fn unsynced_content_survives_a_kill_but_not_a_power_cut() {
    let mut lost = 0;
    for seed in 0..20 {
        let (disk, _) = after_failed_sync(seed, CacheAfterFailedSync::NewStaysReadable);
        disk.kill();
        disk.power_on();
        let file = disk.open(Path::new(PATH), OpenMode::read()).unwrap();
        assert_eq!(first_byte(&*file), 2, "a new process reads it from the cache");
        disk.power_cut(Persist::Everything);
        lost += u32::from(disk.contents(Path::new(PATH)).unwrap()[0] == 1);
    }
    assert!(lost > 0);
}

#[test]
fn failed_durable_write_acts_like_a_failed_sync() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let file = disk.open(Path::new(PATH), OpenMode::create().dsync(true)).unwrap();
        write_all_at(&*file, &[1; BLOCK_BYTES], 0).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk.inject(Fault::on(Op::Write, Effect::Io));
        write_all_at(&*file, &[2; BLOCK_BYTES], 0).unwrap_err();
        let cached = *disk.contents(Path::new(PATH)).unwrap().last().unwrap();
        let first = disk.contents(Path::new(PATH)).unwrap()[0];
        file.sync_data().unwrap();
        disk.power_cut(Persist::Everything);
        let later = disk.contents(Path::new(PATH)).unwrap()[0];
        seen.insert((first, cached, later));
    }
    assert!(seen.contains(&(1, 1, 1)), "nothing was taken");
    assert!(seen.contains(&(2, 1, 1)), "a part was taken, seen, and lost in spite of a later sync");
    assert!(seen.iter().any(|(_, _, later)| *later == 2), "a part became durable: {seen:?}");
}
