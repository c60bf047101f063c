//! A power cut keeps every synced byte, and of the others any version they had, sector by sector.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

use esker_disk::sim::{Persist, Replay, Sector, SimDisk, SimOptions, seed_from_env};
use esker_disk::{BLOCK_BYTES, OpenMode, write_all_at};

use crate::by_path::ByPath;

const SECTORS: [Sector; 2] = [Sector::B512, Sector::B4096];

/// A file of two blocks of `1`, synced, with its name.
fn synced_file(options: SimOptions) -> (SimDisk, std::sync::Arc<dyn esker_disk::File>) {
    let disk = SimDisk::with(options);
    let file = disk.open(Path::new("/a"), OpenMode::create()).unwrap();
    write_all_at(&*file, &[1; 2 * BLOCK_BYTES], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    (disk, file)
}

#[test]
fn each_sector_is_any_of_its_versions_and_each_occurs() {
    let first = seed_from_env("ESKER_SEED", 1);
    for sector in SECTORS {
        let mut cases = BTreeSet::new();
        for seed in first..first + 300 {
            let _replay = Replay::new("each_sector_is_any_of_its_versions", seed);
            let (disk, file) = synced_file(SimOptions::new(seed).sector(sector).torn_percent(0));
            write_all_at(&*file, &[2; BLOCK_BYTES], 0).unwrap();
            write_all_at(&*file, &[3; BLOCK_BYTES], 0).unwrap();
            disk.power_cut(Persist::Random);
            let found = disk.contents(Path::new("/a")).unwrap();
            assert!(
                found[BLOCK_BYTES..] == [1; BLOCK_BYTES],
                "what was not written again is untouched"
            );
            let of_sector = found[..BLOCK_BYTES].chunks(sector.bytes()).map(|bytes| {
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "whole sectors");
                bytes[0]
            });
            let kinds: BTreeSet<u8> = of_sector.collect();
            assert!(kinds.iter().all(|byte| (1..=3).contains(byte)));
            cases.insert(kinds);
        }
        let one_of_each = [[1], [2], [3]].map(BTreeSet::from);
        assert!(one_of_each.iter().all(|case| cases.contains(case)), "{sector:?}: {cases:?}");
        let torn_at_512 = cases.iter().any(|case| case.len() > 1);
        assert_eq!(torn_at_512, sector == Sector::B512, "{cases:?}");
    }
}

#[test]
fn unsynced_bytes_may_be_lost_or_kept_whole() {
    for (persist, expected) in [(Persist::Nothing, 1), (Persist::Everything, 3)] {
        let (disk, file) = synced_file(SimOptions::new(1));
        write_all_at(&*file, &[2; BLOCK_BYTES], 0).unwrap();
        write_all_at(&*file, &[3; BLOCK_BYTES], 0).unwrap();
        disk.power_cut(persist);
        disk.power_on();
        assert!(disk.contents(Path::new("/a")).unwrap()[..BLOCK_BYTES] == [expected; BLOCK_BYTES]);
        assert_eq!(
            disk.contents(Path::new("/a")).unwrap(),
            disk.durable_contents(Path::new("/a")).unwrap(),
            "nothing is left in the air"
        );
    }
}

#[test]
fn an_unsynced_size_is_any_of_those_it_had() {
    let first = seed_from_env("ESKER_SEED", 1);
    let mut sizes = BTreeSet::new();
    for seed in first..first + 300 {
        let _replay = Replay::new("an_unsynced_size", seed);
        let (disk, file) = synced_file(SimOptions::new(seed));
        write_all_at(&*file, &[2; 100], 2 * BLOCK_BYTES as u64).unwrap();
        file.set_len(10).unwrap();
        file.set_len(3 * BLOCK_BYTES as u64).unwrap();
        disk.power_cut(Persist::Random);
        let found = disk.contents(Path::new("/a")).unwrap();
        assert!(found[..10] == [1; 10], "no version had anything else here");
        if found.len() == 3 * BLOCK_BYTES {
            let zeros = found[BLOCK_BYTES..].iter().all(|byte| *byte == 0);
            assert!(zeros, "what a cut took away does not come back in a grown file");
        }
        sizes.insert(found.len());
    }
    let all = BTreeSet::from([10, 2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 100, 3 * BLOCK_BYTES]);
    assert_eq!(sizes, all);
}

#[test]
fn a_sync_keeps_bytes_and_size() {
    for seed in 0..100 {
        let (disk, file) = synced_file(SimOptions::new(seed));
        file.set_len(10).unwrap();
        write_all_at(&*file, &[2; 100], 3 * BLOCK_BYTES as u64).unwrap();
        file.sync_data().unwrap();
        let before = disk.contents(Path::new("/a")).unwrap();
        disk.power_cut(Persist::Torn);
        assert!(disk.contents(Path::new("/a")).unwrap() == before);
    }
}
