//! One state can be cut in many ways.

use std::collections::BTreeSet;
use std::path::Path;

use esker_disk::sim::{Persist, SimDisk};
use esker_disk::{BLOCK_BYTES, OpenMode, write_all_at};

use crate::by_path::ByPath;

#[test]
fn forks_start_equal_and_do_not_touch_each_other() {
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new("/a"), OpenMode::create()).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    write_all_at(&*file, &[1; 8 * BLOCK_BYTES], 0).unwrap();
    file.sync_data().unwrap();
    write_all_at(&*file, &[2; 8 * BLOCK_BYTES], 0).unwrap();
    let _lock = disk.lock(Path::new("/")).unwrap();
    let state = disk.fingerprint();

    let mut ends = BTreeSet::new();
    for seed in 0..50 {
        let fork = disk.fork(seed);
        assert_eq!(fork.fingerprint(), state);
        assert_eq!(fork.operations(), disk.operations());
        drop(fork.lock(Path::new("/")).unwrap());
        fork.power_cut(Persist::Random);
        ends.insert(fork.fingerprint());
    }
    assert!(ends.len() > 25, "{} different ends", ends.len());

    let fork = disk.fork(1);
    write_all_at(&*file, &[3; BLOCK_BYTES], 0).unwrap();
    assert_eq!(fork.contents(Path::new("/a")).unwrap()[0], 2);
    fork.overwrite(Path::new("/a"), 0, &[4]).unwrap();
    assert_eq!(disk.contents(Path::new("/a")).unwrap()[0], 3);
}

#[test]
fn unsynced_bytes_are_unsynced_in_the_fork() {
    let disk = SimDisk::new(1);
    disk.open(Path::new("/a"), OpenMode::create()).unwrap();
    let fork = disk.fork(1);
    assert_eq!(fork.files(Path::new("/")).unwrap(), ["a"]);
    fork.power_cut(Persist::Nothing);
    assert!(fork.files(Path::new("/")).unwrap().is_empty());
    assert!(disk.is_on());
}
